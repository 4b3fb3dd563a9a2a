// Small marks shared by the views: how frequent a label is, how good a score.

import { count, draw, make, plural } from "./dom.js";
import { frequency } from "./known.js";

/** Five small bars, fewer of them filled the rarer the label. */
export function frequencyMark(n) {
  const { place, word } = frequency(n);
  const bars = [0, 1, 2, 3, 4].map((bar) => draw("rect", {
    x: bar * 5, y: 10 - 2 * bar, width: 3.5, height: 4 + 2 * bar, rx: 1,
    class: bar < 5 - place ? "on" : "off",
  }));
  const picture = draw("svg", { viewBox: "0 0 24 14", class: "often-mark", "aria-hidden": "true" }, bars);
  const title = n === 0 ? "No training text has it" : `${plural(n, "training text")} with it`;
  const words = n === 0 ? word : `${word} · ${count(n)}`;
  return make("span", { class: "often", title }, picture,
    make("span", {}, words), make("span", { class: "unseen" }, n === 0 ? "" : " training texts"));
}

/** A score as people read it: a probability in percent, a cosine with two digits. */
export function scoreWords(score, head) {
  if (head !== "ensemble") return score.toFixed(2);
  const percent = 100 * score;
  return percent > 0 && percent < 1 ? "< 1 %" : `${Math.round(percent)} %`;
}

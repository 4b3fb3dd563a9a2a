// One predicted label: its text, score, contributions of the scorers, and two buttons to correct it.

import { draw, make, readable } from "./dom.js";
import { SCORERS } from "./known.js";
import { frequencyMark, scoreWords } from "./marks.js";

const WIDTH = 1000;

/** Scorers that a head uses, in the order of their colours. */
export function scorersOf(labels, head) {
  if (head in SCORERS) return [head];
  const there = new Set(labels.flatMap((label) => Object.keys(label.contributions ?? {})));
  return Object.keys(SCORERS).filter((scorer) => there.has(scorer));
}

export function legend(scorers) {
  return scorers.map((scorer) => make("li", { title: SCORERS[scorer] },
    draw("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" },
      draw("rect", { width: 12, height: 12, rx: 3, class: `scorer ${scorer}` })),
    scorer));
}

/** An item of the list; `judge(label, verdict)` is called when a label is marked. */
export function resultItem(label, rank, context) {
  const { head, scorers, best, judge } = context;
  const score = scoreWords(label.score, head);
  const item = make("li", { class: "result", tabindex: "-1", "data-id": label.id },
    make("span", { class: "rank", "aria-hidden": "true" }, String(rank)),
    make("div", { class: "what" },
      make("p", { class: "label-text" }, readable(label.text)),
      make("p", { class: "small" }, make("code", {}, make("bdi", {}, label.id)), " ",
        frequencyMark(label.count))),
    make("span", { class: "score" }, make("span", { class: "unseen" }, "score "), score),
    bar(label, scorers, head, best),
    make("p", { class: "small shares" }, shareWords(label, scorers, head).map((words) => make("span", {}, words))));
  if (judge) item.append(verdicts(label, judge));
  return item;
}

/** Share of each scorer in the positive contributions; empty where there are none. */
function shares(label, scorers) {
  if (scorers.length === 1) return [[scorers[0], 1]];
  const values = scorers.map((scorer) => [scorer, Math.max(0, label.contributions?.[scorer] ?? 0)]);
  const sum = values.reduce((total, [, value]) => total + value, 0);
  if (sum <= 0) return [];
  return values.map(([scorer, value]) => [scorer, value / sum]);
}

function bar(label, scorers, head, best) {
  const whole = head === "ensemble" ? label.score : label.score / Math.max(best, 1e-9);
  const length = WIDTH * Math.min(1, Math.max(0.004, whole));
  let from = 0;
  const pieces = shares(label, scorers).map(([scorer, share]) => {
    const piece = draw("rect", {
      x: from, y: 0, width: Math.max(0, length * share), height: 10, class: `scorer ${scorer}`,
    });
    from += length * share;
    return piece;
  });
  if (!pieces.length) pieces.push(draw("rect", { width: length, height: 10, class: "scorer none" }));
  return draw("svg", {
    viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", class: "bar", "aria-hidden": "true",
  }, draw("rect", { width: WIDTH, height: 10, class: "track" }), pieces);
}

function shareWords(label, scorers, head) {
  if (head === "ensemble") {
    const own = shares(label, scorers).filter(([, share]) => share >= 0.005);
    if (!own.length) return ["no positive contribution"];
    return own.map(([scorer, share]) => `${scorer} ${Math.round(100 * share)} %`);
  }
  return Object.keys(SCORERS).filter((scorer) => scorer in (label.contributions ?? {}))
    .map((scorer) => `${scorer} ${label.contributions[scorer].toFixed(2)}`);
}

function verdicts(label, judge) {
  const button = (verdict, sign, words) => make("button", {
    type: "button", class: `verdict ${verdict}`, "aria-pressed": "false",
    "data-verdict": verdict, title: words, "aria-label": `${words}: ${label.text.slice(0, 100)}`,
    onclick: () => judge(label, verdict),
  }, sign);
  return make("div", { class: "verdicts" },
    button("right", "✓", "Right"), button("wrong", "✕", "Wrong"));
}

/** Show the mark of an item. */
export function showVerdict(item, verdict) {
  item.classList.toggle("right", verdict === "right");
  item.classList.toggle("wrong", verdict === "wrong");
  for (const button of item.querySelectorAll(".verdict")) {
    button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict));
  }
}

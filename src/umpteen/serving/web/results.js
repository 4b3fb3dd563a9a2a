// One ranked label: its text, score, where the score comes from, and two buttons to correct it.

import { draw, make, readable } from "./dom.js";
import { PARTS } from "./known.js";
import { frequencyMark, scoreWords } from "./marks.js";

const WIDTH = 1000;

/** Parts that count for a head, in the order of their colours. */
export function partsOf(labels, head) {
  if (head in PARTS) return [head];
  const there = new Set(labels.flatMap((label) => Object.keys(label.parts ?? {})));
  return Object.keys(PARTS).filter((part) => there.has(part));
}

export function legend(parts) {
  return parts.map((part) => make("li", {},
    draw("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" },
      draw("rect", { width: 12, height: 12, rx: 3, class: `part ${part}` })),
    PARTS[part]));
}

/** An item of the list; `judge(label, verdict)` is told when somebody judges it. */
export function resultItem(label, rank, context) {
  const { head, parts, best, judge } = context;
  const score = scoreWords(label.score, head);
  const item = make("li", { class: "result", tabindex: "-1", "data-id": label.id },
    make("span", { class: "rank", "aria-hidden": "true" }, String(rank)),
    make("div", { class: "what" },
      make("p", { class: "label-text" }, readable(label.text)),
      make("p", { class: "small" }, make("code", {}, make("bdi", {}, label.id)), " ",
        frequencyMark(label.count))),
    make("span", { class: "score" }, make("span", { class: "unseen" }, "score "), score),
    bar(label, parts, head, best),
    make("p", { class: "small shares" }, shareWords(label, parts, head).map((words) => make("span", {}, words))));
  if (judge) item.append(verdicts(label, judge));
  return item;
}

function given(label, parts, head) {
  if (parts.length === 1) return [[parts[0], 1]];
  const values = parts.map((part) => [part, Math.max(0, label.parts?.[part] ?? 0)]);
  const sum = values.reduce((total, [, value]) => total + value, 0);
  if (sum <= 0) return [];
  return values.map(([part, value]) => [part, value / sum]);
}

function bar(label, parts, head, best) {
  const whole = head === "ensemble" ? label.score : label.score / Math.max(best, 1e-9);
  const length = WIDTH * Math.min(1, Math.max(0.004, whole));
  let from = 0;
  const pieces = given(label, parts, head).map(([part, share]) => {
    const piece = draw("rect", {
      x: from, y: 0, width: Math.max(0, length * share), height: 10, class: `part ${part}`,
    });
    from += length * share;
    return piece;
  });
  if (!pieces.length) pieces.push(draw("rect", { width: length, height: 10, class: "part none" }));
  return draw("svg", {
    viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", class: "bar", "aria-hidden": "true",
  }, draw("rect", { width: WIDTH, height: 10, class: "track" }), pieces);
}

function shareWords(label, parts, head) {
  if (head === "ensemble") {
    const shares = given(label, parts, head).filter(([, share]) => share >= 0.005);
    if (!shares.length) return ["no part speaks for it more than for others"];
    return shares.map(([part, share]) => `${PARTS[part]} ${Math.round(100 * share)} %`);
  }
  return Object.keys(PARTS).filter((part) => part in (label.parts ?? {}))
    .map((part) => `${PARTS[part]} ${label.parts[part].toFixed(2)}`);
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

/** Show on an item what has been judged. */
export function showVerdict(item, verdict) {
  item.classList.toggle("right", verdict === "right");
  item.classList.toggle("wrong", verdict === "wrong");
  for (const button of item.querySelectorAll(".verdict")) {
    button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict));
  }
}

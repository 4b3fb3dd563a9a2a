// The view that orders texts by what a correction is expected to change, and keeps them as a queue.

import * as api from "./api.js";
import { announce, find, make, plural, readable, show } from "./dom.js";
import { attempt } from "./faults.js";
import { known } from "./known.js";
import { askFor } from "./predict.js";

const SHOWN_LABELS = 6;
const queue = new Map(); // text -> {text, gain, expected_errors, labels, right}

export function setUp() {
  find("review-form").addEventListener("submit", (event) => {
    event.preventDefault();
    order();
  });
  find("review-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    find("review-texts").value = (await file.text()).trimEnd();
    event.target.value = "";
    announce(`${file.name} is read.`);
  });
  find("review-export").addEventListener("click", save);
  find("review-clear").addEventListener("click", () => {
    queue.clear();
    render();
    find("review-texts").focus();
  });
  find("later").addEventListener("click", () => later(find("text").value));
  window.addEventListener("corrected", ({ detail }) => {
    const entry = queue.get(detail.text);
    if (!entry) return;
    entry.right = detail.ids;
    render();
  });
}

/** Show why nothing can be ordered, where that is so. */
export function prepare() {
  const { info } = known();
  find("review-order").disabled = !info.ensemble;
  find("review-hint").textContent = info.ensemble
    ? `One text a line, at most ${info.limits.max_texts}. Texts whose correction should help most come first.`
    : "This needs an ensemble. Fit one with: umpteen fit-ensemble.";
  render();
}

const lines = () => [...new Set(find("review-texts").value.split("\n").map((line) => line.trim()))]
  .filter((line) => line !== "");

/** Order the texts in the field and add them to the queue. */
async function order() {
  const texts = lines();
  if (!texts.length) {
    find("review-texts").focus();
    announce("Type some texts first.");
    return;
  }
  find("review-order").setAttribute("aria-busy", "true");
  const body = { texts, n: Number(find("review-n").value) };
  const answer = await attempt(find("review-fault"), () => api.suggest(body), order);
  find("review-order").removeAttribute("aria-busy");
  if (!answer) return;
  for (const found of answer.suggestions) {
    queue.set(found.text, { ...found, right: queue.get(found.text)?.right ?? null });
  }
  render();
  announce(`${plural(answer.suggestions.length, "text")} to label next.`);
  find("review-list").querySelector("button")?.focus();
}

/** Keep one text for later. */
async function later(text) {
  if (!text.trim()) return;
  const answer = await attempt(find("predict-fault"),
    () => api.suggest({ texts: [text], n: 1 }), () => later(text));
  if (!answer) return;
  const found = answer.suggestions[0] ?? { gain: 0, expected_errors: 0, labels: [] };
  queue.set(text, { ...found, text, right: null });
  render();
  announce(`Kept for review: ${plural(queue.size, "text")}.`);
}

const entries = () => [...queue.values()].sort((one, two) => two.gain - one.gain);

function render() {
  const all = entries();
  const open = all.filter((entry) => entry.right === null).length;
  find("review-count").textContent = all.length
    ? `${plural(all.length, "text")} in the queue, ${open} to review` : "The queue is empty.";
  find("review-list").replaceChildren(...all.map(item));
  for (const id of ["review-export", "review-clear"]) find(id).disabled = all.length === 0;
  show(find("review-badge"), open > 0);
  find("review-badge").textContent = String(open);
}

function item(entry) {
  const predicted = entry.labels.filter((label) => label.predicted);
  const shown = entry.right
    ? entry.right.map((id) => ({ text: id })) : predicted.length ? predicted : entry.labels.slice(0, 1);
  return make("li", { class: entry.right ? "reviewed" : null },
    make("div", {},
      make("p", { class: "label-text" }, readable(entry.text)),
      make("ul", { class: "chips" }, shown.slice(0, SHOWN_LABELS).map((label) => make("li", {},
        make("bdi", {}, label.text.slice(0, 80)),
        label.score === undefined ? null : make("span", { class: "chance" }, `${Math.round(100 * label.score)} %`)))),
      make("p", { class: "small soft" }, entry.right ? "Corrected" :
        `${predicted.length ? "" : "No label is probable. "}About ${entry.expected_errors.toFixed(1)} wrong or missing labels; gain ${entry.gain.toFixed(1)}`)),
    make("div", { class: "row end" },
      make("button", {
        type: "button", class: entry.right ? "quiet" : "primary",
        "aria-label": `Review ${entry.text.slice(0, 100)}`, onclick: () => review(entry.text),
      }, entry.right ? "Again" : "Review"),
      make("button", {
        type: "button", class: "quiet", "aria-label": `Remove ${entry.text.slice(0, 100)}`,
        onclick: () => { queue.delete(entry.text); render(); },
      }, "Remove")));
}

function review(text) {
  location.hash = "#predict";
  askFor(text);
}

/** Download the queue as JSON lines: what `umpteen examples add` reads once labels are right. */
function save() {
  const written = entries().map((entry) => JSON.stringify({
    text: entry.text,
    labels: entry.right ?? entry.labels.filter((label) => label.predicted).map((label) => label.id),
    reviewed: entry.right !== null,
    gain: entry.gain,
    expected_errors: entry.expected_errors,
    candidates: entry.labels.map(({ id, text, score }) => ({ id, text, score })),
  }));
  const url = URL.createObjectURL(new Blob([written.map((line) => `${line}\n`).join("")],
    { type: "application/x-ndjson" }));
  const link = make("a", { href: url, download: "review.jsonl" });
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(url), 10000);
  announce(`${plural(written.length, "text")} exported.`);
}

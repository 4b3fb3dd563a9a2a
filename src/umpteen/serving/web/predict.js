// The view that finds labels for a text.

import * as api from "./api.js";
import { Correction } from "./correction.js";
import { announce, find, make, plural, readable, show } from "./dom.js";
import { attempt } from "./faults.js";
import { known, know } from "./known.js";
import { legend, resultItem, scorersOf } from "./results.js";
import { scoreWords } from "./marks.js";

let asking = null;
let correction = null;

export function setUp() {
  correction = new Correction(ask);
  const text = find("text");
  find("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    ask();
  });
  for (const id of ["how-many", "head"]) {
    find(id).addEventListener("change", () => { if (text.value.trim()) ask(); });
  }
  find("found").addEventListener("keydown", onListKey);
}

/** Fill in what depends on the run. */
export function prepare() {
  const { info, report } = known();
  const head = find("head");
  if (!head.options.length) {
    head.append(...[...info.heads].reverse().map((name) =>
      make("option", { value: name }, name)));
    head.value = info.default_head;
    show(head.parentElement, info.heads.length > 1);
  }
  find("text").maxLength = info.limits.max_characters;
  const tries = find("tries");
  tries.replaceChildren(make("span", { class: "hint" }, "Try: "), ...report.examples.map((example) =>
    make("button", { type: "button", class: "try", onclick: () => askFor(example) }, example)));
  show(tries, report.examples.length > 0);
}

export function askFor(text) {
  find("text").value = text;
  return ask();
}

/** Predict the labels of the text in the field. */
export async function ask() {
  const text = find("text").value;
  if (!text.trim()) {
    find("text").focus();
    announce("Type a text first.");
    return;
  }
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  find("answer").setAttribute("aria-busy", "true");
  const body = { texts: [text], k: Number(find("how-many").value), head: find("head").value };
  const answer = await attempt(find("predict-fault"), async () => {
    await know();
    const found = await api.predict(body.head ? body : { texts: body.texts, k: body.k }, signal);
    const { info } = known();
    if (found.name !== info.name || found.model !== info.model) {  // another model is active now
      await know(true);
      window.dispatchEvent(new Event("known"));
    }
    return found;
  }, ask);
  if (signal.aborted) return;
  find("answer").removeAttribute("aria-busy");
  if (answer) render(text, answer);
}

function render(text, { predictions: [{ labels, neighbours, note }], head }) {
  const { info } = known();
  const scorers = scorersOf(labels, head);
  const best = Math.max(...labels.map((label) => label.score), 0);
  const judge = info.ensemble && !info.changes ? (label, verdict) => correction.judge(label, verdict) : null;
  find("legend").replaceChildren(...(scorers.length > 1 ? legend(scorers) : []));
  find("found").replaceChildren(...labels.map((label, place) =>
    resultItem(label, place + 1, { head, scorers, best, judge })));
  const first = find("found").firstElementChild;
  if (first) first.tabIndex = 0;
  find("found-title").textContent = plural(labels.length, "label");
  find("found-note").textContent = noteWords(labels, head, note, info);
  renderNear(neighbours, info);
  show(find("answer"), true);
  correction.begin(text);
  announce(labels.length
    ? `${plural(labels.length, "label")} found. Best: ${labels[0].text.slice(0, 120)}, ${scoreWords(labels[0].score, head)}.`
    : "No label was found.");
}

function noteWords(labels, head, note, info) {
  const words = [];
  if (note) words.push(api.sentence(note));
  if (!labels.length) words.push("No label was found for this text.");
  else if (head === "ensemble") words.push("Scores are probabilities. The colours of a bar show the contribution of each scorer.");
  else words.push("Scores are cosines, or the sum of two. Bars are relative to the best score.");
  if (!info.ensemble) words.push("Corrections need an ensemble. Fit one with: umpteen fit-ensemble.");
  else if (info.changes) words.push(`Corrections are not possible: ${info.changes}.`);
  return words.join(" ");
}

function renderNear(neighbours, info) {
  const there = neighbours ?? [];
  find("near-list").replaceChildren(...there.map((near) => make("li", {},
    make("p", {}, near.text === null || near.text === undefined
      ? make("span", { class: "soft" }, "A training text that is not stored") : readable(near.text)),
    make("ul", { class: "chips" }, near.labels.slice(0, 8).map((label) =>
      make("li", {}, make("bdi", {}, label.length > 80 ? `${label.slice(0, 79)}…` : label)))),
    make("p", { class: "small soft" }, `similarity ${near.score.toFixed(2)}`,
      near.labels.length > 8 ? `, and ${plural(near.labels.length - 8, "more label")}` : ""))));
  find("near-note").textContent = there.length ? ""
    : info.n_examples ? "No similar example." : "This run stores no examples.";
}

function onListKey(event) {
  const item = event.target.closest(".result");
  if (!item) return;
  const other = { ArrowDown: item.nextElementSibling, ArrowUp: item.previousElementSibling,
    Home: item.parentElement.firstElementChild, End: item.parentElement.lastElementChild }[event.key];
  if (!other) return;
  event.preventDefault();
  item.tabIndex = -1;
  other.tabIndex = 0;
  other.focus();
}

/** Mark the label that has the focus. */
export function judgeFocused(verdict) {
  const item = document.activeElement?.closest?.(".result");
  const button = item?.querySelector(`.verdict.${verdict}`);
  if (!button) return false;
  button.click();
  return true;
}

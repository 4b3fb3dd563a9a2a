// Single-key shortcuts outside text fields; they can be switched off for voice control.

import { find, make } from "./dom.js";
import { judgeFocused } from "./predict.js";

export const KEYS = [
  ["/", "to the text or search field"],
  ["1 2 3 4", "Predict, Labels, Run, Review"],
  ["Enter", "in the text field: find labels"],
  ["↑ ↓", "in the list of labels: up and down"],
  ["a", "mark the label in focus as right"],
  ["x", "mark the label in focus as wrong"],
  ["s", "store the correction"],
  ["?", "this list"],
];

const VIEWS = { 1: "predict", 2: "labels", 3: "run", 4: "review" };
const FIELDS = { predict: "text", labels: "words", review: "review-texts" };

export function setUp(current) {
  find("keys-list").replaceChildren(...KEYS.flatMap(([keys, words]) => [
    make("dt", {}, keys.split(" ").map((key) => make("kbd", {}, key))), make("dd", {}, words)]));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    if (find("keys-on").checked && press(event.key, current())) event.preventDefault();
  });
}

function typing(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") !== null;
}

function press(key, view) {
  if (key in VIEWS) {
    location.hash = `#${VIEWS[key]}`;
    return true;
  }
  if (key === "/" && view in FIELDS) {
    find(FIELDS[view]).focus();
    return true;
  }
  if (key === "?") {
    find("keys-dialog").showModal();
    return true;
  }
  if (view !== "predict") return false;
  if (key === "a") return judgeFocused("right");
  if (key === "x") return judgeFocused("wrong");
  if (key === "s" && !find("correction").hidden) {
    find("correction-send").click();
    return true;
  }
  return false;
}

// The view that lists, adds, retires and restores labels.

import * as api from "./api.js";
import { announce, count, find, make, plural, readable, show } from "./dom.js";
import { attempt } from "./faults.js";
import { known, know } from "./known.js";
import { frequencyMark } from "./marks.js";
import { askFor } from "./predict.js";

const PAGE = 25;
const WAIT = 200;
let offset = 0;
let asking = null;
let timer = 0;

export function setUp() {
  const restart = () => { offset = 0; list(); };
  find("label-search").addEventListener("submit", (event) => { event.preventDefault(); restart(); });
  find("words").addEventListener("input", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(restart, WAIT);
  });
  find("order").addEventListener("change", restart);
  find("changed").addEventListener("change", restart);
  find("page-back").addEventListener("click", () => turn(-PAGE));
  find("page-on").addEventListener("click", () => turn(PAGE));
  find("add").addEventListener("submit", (event) => { event.preventDefault(); add(); });
}

/** Show what may be changed, and the first labels. */
export function prepare() {
  const why = known().info.changes;
  find("add-send").disabled = why !== "";
  if (why) find("add-hint").textContent = `Labels cannot be changed now: ${why}.`;
  const add = find("add-card");
  add.open ||= window.matchMedia("(min-width: 52rem)").matches;
  list();
}

async function turn(by) {
  offset = Math.max(0, offset + by);
  await list();
  find("labels-count").scrollIntoView({ block: "start" });
}

/** Read and show a page of labels. */
export async function list() {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  const values = {
    search: find("words").value, order: find("order").value, changed: find("changed").checked,
    offset, limit: PAGE,
  };
  const page = await attempt(find("labels-fault"), () => api.labels(values, signal), list);
  if (!page || signal.aborted) return;
  find("label-list").replaceChildren(...page.labels.map(item));
  const last = offset + page.labels.length;
  find("labels-count").textContent = page.total ? plural(page.total, "label") : "No label has these words.";
  find("page-place").textContent = page.total ? `${count(offset + 1)} to ${count(last)} of ${count(page.total)}` : "";
  find("page-back").disabled = offset === 0;
  find("page-on").disabled = last >= page.total;
  announce(page.total ? `${plural(page.total, "label")} found, ${page.labels.length} shown.` : "No label has these words.");
}

function item(label) {
  const gone = label.state === "retired";
  const button = make("button", {
    type: "button", class: "quiet", disabled: known().info.changes !== "",
    "aria-label": `${gone ? "Restore" : "Retire"} ${label.text.slice(0, 100)}`,
    onclick: () => move(label),
  }, gone ? "Restore" : "Retire");
  return make("li", { class: label.state, "data-id": label.id },
    make("div", { class: "what" },
      make("p", { class: "label-text" }, readable(label.text)),
      make("p", { class: "small" }, make("code", {}, make("bdi", {}, label.id)), " ",
        frequencyMark(label.count), " ",
        label.state === "trained" ? null : make("span", { class: `state ${label.state}` }, label.state))),
    button);
}

async function move(label) {
  const gone = label.state === "retired";
  const change = gone ? api.restore : api.retire;
  const done = await attempt(find("labels-fault"), () => change(label.id), () => move(label));
  if (!done) return;
  await list();
  const line = [...find("label-list").children].find((other) => other.dataset.id === label.id);
  (line?.querySelector("button.quiet") ?? find("words")).focus();
  announce(gone ? "Restored: it is predicted again." : "Retired: it is no longer predicted.");
  refresh();
}

async function add() {
  const label = { id: find("add-id").value.trim(), text: find("add-text").value.trim() };
  const content = find("add-content").value.trim();
  if (content) label.content = content;
  const done = await attempt(find("add-fault"), () => api.addLabel(label), add);
  if (!done) return;
  find("add").reset();
  const place = find("add-done");
  place.replaceChildren(make("bdi", {}, label.text.slice(0, 120)), " was added and can be predicted now. ",
    make("button", { type: "button", class: "link", id: "try-added", onclick: () => {
      location.hash = "#predict";
      askFor(label.text);
    } }, "Try it"));
  show(place, true);
  announce("The label was added.");
  find("add-id").focus();
  refresh();
  list();
}

/** Numbers in the head of the page follow. */
async function refresh() {
  await know(true).catch(() => null);
  window.dispatchEvent(new Event("known"));
}

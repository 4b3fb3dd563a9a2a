// The section where labels are browsed, added, retired and restored.

import { address, call } from "./service.js";
import { byId, columns, count, element, notice } from "./draw.js";

const PAGE = 20;
let offset = 0;
let mayChange = false;

export function start(info) {
  mayChange = !info.changes;
  byId("no-changes").textContent = info.changes ? `Labels cannot be changed: ${info.changes}.` : "";
  byId("no-changes").hidden = mayChange;
  byId("add").hidden = !mayChange;
  drawFrequencies(info.frequencies);
  byId("search").addEventListener("submit", (event) => { event.preventDefault(); offset = 0; load(); });
  byId("order").addEventListener("change", () => { offset = 0; load(); });
  byId("changed").addEventListener("change", () => { offset = 0; load(); });
  byId("back").addEventListener("click", () => { offset = Math.max(0, offset - PAGE); load(); });
  byId("on").addEventListener("click", () => { offset += PAGE; load(); });
  byId("add").addEventListener("submit", (event) => { event.preventDefault(); add(); });
  load();
}

function drawFrequencies(bins) {
  const bars = bins.filter((bin, n) => bin.labels || n).map((bin) => ({
    value: Math.log10(1 + bin.labels),
    above: count(bin.labels),
    below: bin.least === bin.most ? String(bin.least) : `${bin.least}–${bin.most}`,
  }));
  byId("frequencies").replaceChildren(columns(bars, "Number of labels for each number of training texts"));
}

async function load() {
  const fields = { search: byId("query").value, order: byId("order").value, changed: byId("changed").checked, offset, limit: PAGE };
  try {
    const page = await call("GET", address("/v1/labels", fields));
    byId("list").replaceChildren(...page.labels.map(row));
    const last = Math.min(offset + PAGE, page.total);
    byId("total").textContent = page.total ? `${count(offset + 1)} to ${count(last)} of ${count(page.total)} labels` : "No label has these words.";
    byId("back").disabled = offset === 0;
    byId("on").disabled = last >= page.total;
  } catch (error) {
    notice(error.message);
  }
}

function row(label) {
  const out = label.state === "retired";
  const button = element("button", { type: "button", class: "quiet", "aria-label": `${out ? "Restore" : "Retire"} ${label.text}` }, out ? "Restore" : "Retire");
  button.addEventListener("click", () => move(label, out ? "restore" : "retire"));
  return element("tr", {},
    element("th", { scope: "row" }, label.text, element("span", { class: "id" }, label.id)),
    element("td", { class: "number" }, count(label.count)),
    element("td", {}, label.state),
    element("td", {}, mayChange ? button : ""));
}

async function move(label, what) {
  try {
    await call("POST", `/v1/labels/${what}`, { ids: [label.id] });
    notice(what === "retire" ? `“${label.text}” is out of every answer.` : `“${label.text}” can be found again.`);
    await load();
  } catch (error) {
    notice(error.message);
  }
}

async function add() {
  const label = { id: byId("new-id").value.trim(), text: byId("new-text").value.trim() };
  try {
    await call("POST", "/v1/labels", { labels: [label] });
    byId("add").reset();
    byId("query").value = label.id;
    offset = 0;
    await load();
    notice(`“${label.text}” was added and can be found from now on.`);
  } catch (error) {
    notice(error.message);
  }
}

// The section about the run: facts, validation curves, metrics.

import { byId, count, curves, element, partName } from "./draw.js";

export function start(info) {
  byId("run-name").textContent = info.run;
  byId("run-line").textContent = `${count(info.n_labels)} labels` + (info.n_added ? `, ${count(info.n_added)} of them added since training` : "");
  document.title = `${info.run} · umpteen`;
  const facts = { labels: count(info.n_labels), added: count(info.n_added), retired: count(info.n_retired), model: info.model, umpteen: info.umpteen };
  if (info.remembered >= 0) facts["texts remembered"] = count(info.remembered);
  byId("facts").replaceChildren(...Object.entries(facts).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
  byId("report-line").hidden = !info.report;
  drawHistory(info.history);
}

function drawHistory(history) {
  const last = history.at(-1);
  if (!last) return;
  const heads = Object.keys(last.heads);
  const metric = "P@1";
  const lines = heads.map((head) => ({ name: head, points: history.filter((entry) => entry.heads?.[head]?.[metric] !== undefined).map((entry) => [entry.epoch, entry.heads[head][metric]]) })).filter((line) => line.points.length);
  if (lines.length) {
    byId("curve-title").textContent = `Validation ${metric}, in percent`;
    byId("curve").replaceChildren(curves(lines, `${metric} on validation after each epoch`),
      element("ul", { class: "legend" }, ...lines.map((line, n) => element("li", {}, element("i", { class: `part-${n}` }), partName(line.name)))));
  }
  const names = [...new Set(heads.flatMap((head) => Object.keys(last.heads[head])))];
  byId("metrics").replaceChildren(
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "metric"), ...heads.map((head) => element("th", { scope: "col", class: "number" }, partName(head))))),
    element("tbody", {}, ...names.map((name) => element("tr", {}, element("th", { scope: "row" }, name),
      ...heads.map((head) => element("td", { class: "number" }, last.heads[head][name]?.toFixed(1) ?? "–"))))));
}

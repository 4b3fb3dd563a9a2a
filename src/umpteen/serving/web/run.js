// The view with the metrics, learning curves and facts of the run.

import { hasToken } from "./api.js";
import { barChart, lineChart } from "./charts.js";
import { count, find, make, plural } from "./dom.js";
import { known, SCORERS } from "./known.js";

const TILES = ["P@1", "P@5", "nDCG@5", "PSP@1", "PSP@5", "R@100"];

export function setUp() {}

export function prepare() {
  const { info, report } = known();
  find("title-run").replaceChildren(make("bdi", {}, info.run));
  find("run-body").replaceChildren(...[
    opening(info, report),
    metrics(report),
    curves(report),
    ensemble(info, report),
    frequencies(info),
    facts(report),
  ].filter(Boolean));
}

function card(title, ...children) {
  return make("section", { class: "card" }, make("h2", {}, title), ...children);
}

function opening(info, report) {
  const changed = [
    info.n_added ? `${count(info.n_added)} added` : "",
    info.n_retired ? `${count(info.n_retired)} retired` : "",
  ].filter(Boolean).join(", ");
  const labels = `${plural(info.n_labels, "label")}${changed ? ` (${changed} since training)` : ""}`;
  const examples = info.n_examples ? `, ${plural(info.n_examples, "stored example")}` : "";
  const link = info.report && !hasToken()
    ? make("p", {}, make("a", { href: "/report" }, "Full report")) : null;
  return make("div", {}, make("p", { class: "soft" }, `${labels}${examples}. ${report.standing}`), link);
}

function chosen(report) {
  const of = report.validations.find((entry) => entry.epoch === report.model_epoch);
  return of ?? report.validations[report.validations.length - 1];
}

function metrics(report) {
  const best = chosen(report);
  if (!best) return card("Metrics", make("p", { class: "soft" }, "The run has no validation texts, so there are no metrics."));
  const rows = Object.entries(best.heads).map(([head, values]) => [head, values]);
  if (report.ensemble.length) rows.push(["ensemble", report.ensemble[0].validation]);
  const last = rows[rows.length - 1];
  const names = Object.keys(best.heads[Object.keys(best.heads)[0]]);
  const tiles = TILES.filter((name) => name in last[1]).map((name) => make("div", {},
    make("dt", {}, name), make("dd", {}, last[1][name].toFixed(1))));
  const table = make("table", {},
    make("caption", {}, `Validation, in percent, after epoch ${best.epoch}`),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "head"),
      names.map((name) => make("th", { scope: "col", class: "number" }, name)))),
    make("tbody", {}, rows.map(([title, values]) => make("tr", {}, make("th", { scope: "row" }, title),
      names.map((name) => make("td", { class: "number" }, name in values ? values[name].toFixed(1) : "–"))))));
  return card("Metrics", make("p", { class: "hint" }, `Head ${last[0]}, on validation texts:`), make("dl", { class: "tiles" }, tiles),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Metrics by head" }, table));
}

function curves(report) {
  const figures = [];
  if (report.loss) {
    const { steps, low, high, smooth } = report.loss;
    figures.push(figure("Training loss", lineChart("Training loss by step", [{ look: "train", xs: steps, ys: smooth }],
      { xTitle: "step", band: { xs: steps, low, high } })));
  }
  const heads = [...new Set(report.validations.flatMap((entry) => Object.keys(entry.heads)))];
  const names = report.validations.length > 1 ? Object.keys(report.validations[0].heads[heads[0]]) : [];
  for (const name of names) {
    const lines = heads.map((head) => {
      const own = report.validations.filter((entry) => name in (entry.heads[head] ?? {}));
      return { look: head, xs: own.map((entry) => entry.epoch), ys: own.map((entry) => entry.heads[head][name]) };
    });
    figures.push(figure(name, lineChart(`${name} by epoch, a line for each head`, lines,
      { xTitle: "epoch", mark: report.model_epoch })));
  }
  if (!figures.length) return null;
  const legend = make("ul", { class: "legend" }, heads.map((head) =>
    make("li", {}, make("span", { class: `swatch ${head}`, "aria-hidden": "true" }), head)));
  return card("Learning curves", heads.length > 1 ? legend : null, make("div", { class: "charts" }, figures),
    make("p", { class: "hint" }, "The dotted line marks the epoch of the served model."));
}

function figure(title, picture) {
  return make("figure", {}, make("figcaption", {}, title), picture);
}

function ensemble(info, report) {
  if (!report.ensemble.length) return null;
  const [main] = report.ensemble;
  const shares = Object.entries(main.contributions);
  const total = shares.reduce((sum, [, value]) => sum + Math.max(0, value), 0) || 1;
  const list = make("ul", { class: "shares-list" }, shares.map(([scorer, value]) => {
    const share = Math.max(0, value) / total;
    const fill = make("span", { class: `fill ${scorer}` });
    fill.style.width = `${(100 * share).toFixed(1)}%`;
    return make("li", {}, make("span", { class: "name", title: SCORERS[scorer] }, scorer),
      make("span", { class: "gauge", "aria-hidden": "true" }, fill),
      make("span", { class: "number" }, `${Math.round(100 * share)} %`));
  }));
  return card("Ensemble: contributions of the scorers", make("p", { class: "hint" },
    "Share of each scorer in what separates the first label from the others, on validation texts."), list,
  make("p", { class: "hint" }, calibration(info)));
}

function calibration(info) {
  const { calibration_error: error, threshold } = info.ensemble;
  const measured = error === null ? "not measured" : `${error.toFixed(1)} points`;
  return `Calibration error on validation: ${measured}. Threshold auto: ${threshold.toFixed(2)}.`;
}

function frequencies(info) {
  if (!info.frequencies.length) return null;
  const bars = info.frequencies.map((bin) => ({
    name: bin.min === bin.max ? count(bin.min) : `${count(bin.min)}–${count(bin.max)}`,
    value: bin.labels,
  }));
  return card("Labels from tail to head", make("div", { class: "scroll", tabindex: "0", role: "region",
    "aria-label": "Labels by frequency" }, barChart("Number of labels by training texts", bars,
    { xTitle: "training texts of a label", width: Math.max(420, 64 * bars.length) })),
  make("p", { class: "hint" }, "Bars count labels; the rarest are on the left."));
}

function facts(report) {
  return card("Facts", make("dl", { class: "facts" }, Object.entries(report.facts).map(([name, value]) =>
    [make("dt", {}, name), make("dd", {}, make("bdi", {}, value))])));
}

// Lines and bars as SVG. Colours come from the style sheet.

import { draw } from "./dom.js";

const LEFT = 44;
const RIGHT = 12;
const TOP = 12;
const BOTTOM = 36;

/** Round numbers that cover a range. */
export function ticks(low, high, about = 4) {
  const largest = Math.max(1, Math.abs(low), Math.abs(high));
  if (high - low < 1e-6 * largest) [low, high] = [low - largest / 2, low + largest / 2];
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((m) => power * m >= rough * 0.999);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(10)));
}

/** Lines `{look, xs, ys}` over a common x, with an optional band `{xs, low, high}` and mark. */
export function lineChart(title, lines, { xTitle, band = null, mark = null, width = 360, height = 210 }) {
  const xs = lines.flatMap((line) => line.xs);
  const ys = [...lines.flatMap((line) => line.ys), ...(band ? [...band.low, ...band.high] : [])];
  const [xLow, xHigh] = range(xs);
  const yTicks = ticks(...range(ys));
  const x = (value) => LEFT + ((value - xLow) / Math.max(1e-9, xHigh - xLow)) * (width - LEFT - RIGHT);
  const [bottom, top] = [yTicks[0], yTicks[yTicks.length - 1]];
  const y = (value) => height - BOTTOM - ((value - bottom) / (top - bottom)) * (height - TOP - BOTTOM);
  const at = (xs_, ys_) => xs_.map((value, place) => `${x(value).toFixed(1)},${y(ys_[place]).toFixed(1)}`);
  const parts = yTicks.flatMap((tick) => [
    draw("line", { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick), class: "grid" }),
    draw("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, tick.toLocaleString("en")),
  ]);
  parts.push(...xTicks(xLow, xHigh, x, height, width, xTitle));
  if (band) {
    const edge = [...at(band.xs, band.high), ...at(band.xs, band.low).reverse()];
    parts.push(draw("polygon", { points: edge.join(" "), class: "band" }));
  }
  if (mark !== null && mark >= xLow && mark <= xHigh) {
    parts.push(draw("line", { x1: x(mark), x2: x(mark), y1: TOP, y2: height - BOTTOM, class: "mark" }));
  }
  for (const line of lines) {
    parts.push(draw("polyline", { points: at(line.xs, line.ys).join(" "), class: `line ${line.look}` }));
    if (line.xs.length <= 40) {
      parts.push(...line.xs.map((value, place) =>
        draw("circle", { cx: x(value), cy: y(line.ys[place]), r: 2.6, class: `dot ${line.look}` })));
    }
  }
  return picture(title, width, height, parts);
}

function xTicks(low, high, x, height, width, title) {
  const whole = ticks(low, high, 5).filter((tick) => Number.isInteger(tick) && tick >= low && tick <= high);
  return [
    ...whole.map((tick) => draw("text", { x: x(tick), y: height - BOTTOM + 16, "text-anchor": "middle" },
      tick.toLocaleString("en"))),
    draw("text", { x: (LEFT + width - RIGHT) / 2, y: height - 4, "text-anchor": "middle" }, title),
  ];
}

/** Bars `{name, value}` from zero, each with its value over it. */
export function barChart(title, bars, { xTitle, width = 520, height = 220 }) {
  const top = Math.max(1, ...bars.map((bar) => bar.value));
  const step = (width - 8) / Math.max(1, bars.length);
  const y = (value) => height - BOTTOM - (value / top) * (height - TOP - BOTTOM - 8);
  const parts = bars.flatMap((bar, place) => {
    const from = 4 + place * step;
    return [
      draw("rect", { x: from + 3, y: y(bar.value), width: Math.max(1, step - 6), rx: 2,
        height: Math.max(0.5, height - BOTTOM - y(bar.value)), class: "bar-fill" }),
      draw("text", { x: from + step / 2, y: y(bar.value) - 4, "text-anchor": "middle", class: "value" },
        bar.value.toLocaleString("en")),
      draw("text", { x: from + step / 2, y: height - BOTTOM + 16, "text-anchor": "middle" }, bar.name),
    ];
  });
  parts.push(draw("text", { x: width / 2, y: height - 4, "text-anchor": "middle" }, xTitle));
  return picture(title, width, height, parts);
}

function range(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return [low, high];
}

function picture(title, width, height, parts) {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": title }, parts);
}

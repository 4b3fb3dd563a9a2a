// Elements made of data: always as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export const count = (n) => n.toLocaleString("en");

export function notice(text) {
  const place = byId("notice");
  place.textContent = text;
  place.hidden = !text;
}

const NAMES = { de: "label text", clf: "classifier", votes: "neighbours", lexical: "words", words: "words", combined: "text and classifier", fused: "everything" };
export const partName = (name) => NAMES[name] ?? name.replaceAll("_", " ");

export function columns(bars, label) {
  const [width, height, foot] = [640, 190, 40];
  const most = Math.max(1, ...bars.map((bar) => bar.value));
  const step = width / Math.max(1, bars.length);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  bars.forEach((bar, n) => {
    const size = (height - foot - 20) * bar.value / most;
    const middle = n * step + step / 2;
    picture.append(
      svg("rect", { class: "part-0", x: n * step + 3, y: height - foot - size, width: step - 6, height: Math.max(size, bar.value ? 1 : 0), rx: 3 }),
      svg("text", { x: middle, y: height - foot - size - 5, "text-anchor": "middle" }, bar.above),
      svg("text", { x: middle, y: height - foot + 16, "text-anchor": "middle" }, bar.below),
    );
  });
  picture.append(svg("text", { x: width / 2, y: height - 6, "text-anchor": "middle" }, "training texts of a label"));
  return picture;
}

export function curves(lines, label) {
  const [width, height, left, foot] = [560, 220, 40, 26];
  const points = lines.flatMap((line) => line.points);
  const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  const [y0, y1] = [Math.floor(Math.min(...ys) / 5) * 5, Math.ceil((Math.max(...ys) + 0.01) / 5) * 5];
  const x = (value) => left + (width - left - 12) * (x1 > x0 ? (value - x0) / (x1 - x0) : 0.5);
  const y = (value) => 10 + (height - foot - 10) * (1 - (value - y0) / (y1 - y0));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const value of [y0, (y0 + y1) / 2, y1]) {
    picture.append(
      svg("line", { class: "grid", x1: left, x2: width - 8, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)),
    );
  }
  lines.forEach((line, n) => {
    picture.append(svg("polyline", { class: `part-${n}`, points: line.points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
    line.points.forEach(([a, b]) => picture.append(svg("circle", { class: `part-${n}`, cx: x(a), cy: y(b), r: 3 })));
  });
  picture.append(svg("text", { x: left, y: height - 6 }, `epoch ${x0}`), svg("text", { x: width - 12, y: height - 6, "text-anchor": "end" }, `epoch ${x1}`));
  return picture;
}

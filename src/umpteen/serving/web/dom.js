// Elements made from data. Data becomes text nodes and properties, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `make("li", {class: "x", onclick: f}, "text", child)`. */
export function make(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** The same for SVG. */
export function draw(name, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export const find = (id) => document.getElementById(id);

export function show(element, visible) {
  element.hidden = !visible;
}

/** Announce to screen readers; repeated text is announced again. */
export function announce(words) {
  const place = find("status");
  place.textContent = "";
  window.setTimeout(() => { place.textContent = words; }, 50);
}

export const count = (number) => Number(number).toLocaleString("en");

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

const LONG = 220;

/** A text of any length: a long one is cut, with a button for the rest. */
export function readable(text) {
  if (text.length <= LONG) return make("bdi", {}, text);
  const cut = `${text.slice(0, LONG - 20).trimEnd()}… `;
  const words = make("bdi", {}, cut);
  const more = make("button", { type: "button", class: "link", "aria-expanded": "false" }, "Show all");
  more.addEventListener("click", () => {
    const open = more.getAttribute("aria-expanded") === "true";
    more.setAttribute("aria-expanded", String(!open));
    words.textContent = open ? cut : `${text} `;
    more.textContent = open ? "Show all" : "Show less";
  });
  return make("span", {}, words, more);
}

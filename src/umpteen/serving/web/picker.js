// A search field that offers labels: arrows and Enter, or the pointer.

import * as api from "./api.js";
import { make, show } from "./dom.js";

const WAIT = 180;
const OFFERED = 8;
const LOOKED_AT = 200;

/** Labels that have the words as words before those that have them inside of others. */
function wholeWordsFirst(labels, words) {
  const wanted = words.toLowerCase().split(/\s+/);
  const whole = (label) => {
    const own = ` ${label.id} ${label.text}`.toLowerCase().replace(/[^\p{L}\p{N}.]+/gu, " ");
    return wanted.every((word) => own.includes(` ${word}`));
  };
  return [...labels.filter(whole), ...labels.filter((label) => !whole(label))];
}

export class LabelPicker {
  /** `create` makes a label of the words, where none is called like them; null where it cannot. */
  constructor(field, list, chosen, create = null) {
    Object.assign(this, { field, list, chosen, create, labels: [], at: -1, timer: 0, asking: null });
    field.addEventListener("input", () => {
      window.clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.search(), WAIT);
    });
    field.addEventListener("keydown", (event) => this.onKey(event));
    field.addEventListener("blur", () => window.setTimeout(() => this.close(), 150));
  }

  async search() {
    this.asking?.abort();
    const words = this.field.value.trim();
    if (!words) return this.close();
    this.asking = new AbortController();
    const values = { search: words.slice(0, 200), order: "frequent", limit: LOOKED_AT };
    const page = await api.labels(values, this.asking.signal).catch(() => null);
    if (!page) return undefined;
    const there = page.labels.filter((label) => label.state !== "retired");
    this.labels = wholeWordsFirst(there, words).slice(0, OFFERED);
    const same = (label) => [label.id, label.text].some((own) => own.toLowerCase() === words.toLowerCase());
    if (this.create && !page.labels.some(same)) this.labels.push({ fresh: words });
    this.at = -1;
    this.render();
    return undefined;
  }

  render() {
    this.list.replaceChildren(...this.labels.map((label, place) => make("li", {
      role: "option", id: `${this.list.id}-${place}`, "aria-selected": String(place === this.at),
      onmousedown: (event) => { event.preventDefault(); this.choose(place); },
    }, label.fresh
      ? ["Create the label ", make("strong", {}, make("bdi", {}, label.fresh.slice(0, 120)))]
      : [make("bdi", {}, label.text.slice(0, 120)), " ", make("code", {}, label.id)])));
    const open = this.labels.length > 0;
    show(this.list, open);
    this.field.setAttribute("aria-expanded", String(open));
    if (this.at >= 0) this.field.setAttribute("aria-activedescendant", `${this.list.id}-${this.at}`);
    else this.field.removeAttribute("aria-activedescendant");
  }

  onKey(event) {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move && this.labels.length) {
      event.preventDefault();
      const n = this.labels.length;
      this.at = this.at < 0 ? (move > 0 ? 0 : n - 1) : (this.at + move + n) % n;
      this.render();
    } else if (event.key === "Enter" && this.labels.length) {
      event.preventDefault();
      this.choose(Math.max(0, this.at));
    } else if (event.key === "Escape") {
      this.close();
    }
  }

  choose(place) {
    const label = this.labels[place];
    this.field.value = "";
    this.close();
    if (label.fresh) this.create(label.fresh);
    else this.chosen(label);
  }

  close() {
    this.labels = [];
    this.at = -1;
    this.render();
  }
}

// A correction: the right labels of a text, stored as an example.

import * as api from "./api.js";
import { announce, find, make, plural, show } from "./dom.js";
import { attempt, clear } from "./faults.js";
import { know } from "./known.js";
import { LabelPicker } from "./picker.js";
import { showVerdict } from "./results.js";

export class Correction {
  /** `again` predicts the labels of the text again. */
  constructor(again) {
    this.again = again;
    this.text = "";
    this.right = new Map(); // id -> text
    this.wrong = new Set();
    this.picker = new LabelPicker(find("missing"), find("missing-list"),
      (label) => this.include(label), (words) => this.create(words));
    find("correction-send").addEventListener("click", () => this.send());
    find("correction-drop").addEventListener("click", () => {
      this.begin(this.text);
      find("found").querySelector(".result")?.focus();
    });
  }

  /** Add a label that is missing. */
  include(label) {
    this.wrong.delete(label.id);
    this.right.set(label.id, label.text);
    this.render();
    announce(`${label.text.slice(0, 100)} added to the correction.`);
  }

  /** Create a label that does not exist yet, and add it. */
  async create(words) {
    const label = { id: words.slice(0, 512), text: words };
    const done = await attempt(find("correction-fault"), () => api.addLabel(label),
      () => this.create(words));
    if (!done) return;
    await know(true).catch(() => null);
    this.include(label);
    find("correction-note").textContent = `The label ${words.slice(0, 80)} is new.`;
  }

  /** Start with a text and no verdicts. */
  begin(text) {
    this.text = text;
    this.right.clear();
    this.wrong.clear();
    clear(find("correction-fault"));
    find("correction-note").textContent = "";
    this.render();
  }

  /** Mark a label as right or wrong; the same mark again removes it. */
  judge(label, verdict) {
    const before = this.verdict(label.id);
    this.right.delete(label.id);
    this.wrong.delete(label.id);
    if (verdict !== before && verdict === "right") this.right.set(label.id, label.text);
    if (verdict !== before && verdict === "wrong") this.wrong.add(label.id);
    this.render();
    const now = this.verdict(label.id);
    announce(now ? `Marked ${now}: ${label.text.slice(0, 100)}` : "Mark removed.");
  }

  verdict(id) {
    if (this.right.has(id)) return "right";
    return this.wrong.has(id) ? "wrong" : null;
  }

  get begun() {
    return this.right.size + this.wrong.size > 0;
  }

  render() {
    for (const item of find("found").children) showVerdict(item, this.verdict(item.dataset.id));
    show(find("correction"), this.begun);
    find("correction-says").textContent = this.right.size
      ? "These labels, and no others, are stored for this text. Similar texts get them more often."
      : "Mark the labels that are right, or add one that is missing. A correction needs at least one right label.";
    find("correction-labels").replaceChildren(...[...this.right].map(([id, text]) => make("li", {},
      make("bdi", {}, text.length > 80 ? `${text.slice(0, 79)}…` : text),
      make("button", {
        type: "button", class: "chip-drop", "aria-label": `Leave out ${text.slice(0, 100)}`,
        onclick: () => { this.right.delete(id); this.render(); },
      }, "✕"))));
    find("correction-send").disabled = this.right.size === 0;
  }

  async send() {
    if (!this.right.size) return;
    const ids = [...this.right.keys()];
    const done = await attempt(find("correction-fault"), () => api.addExample(this.text, ids),
      () => this.send());
    if (!done) return;
    window.dispatchEvent(new CustomEvent("corrected", { detail: { text: this.text, ids } }));
    await know(true).catch(() => null);
    await this.again();
    find("found-note").textContent =
      `Correction stored with ${plural(ids.length, "label")}. The labels above already use it.`;
    announce(`Correction stored with ${plural(ids.length, "label")}.`);
    find("found").querySelector(".result")?.focus();
  }
}

// The section where a text gets its labels, and where they are corrected.

import { address, call } from "./service.js";
import { byId, count, element, notice, partName } from "./draw.js";

let about = null;
let asked = "";
let verdicts = new Map();

export function start(info) {
  about = info;
  byId("head").replaceChildren(...info.heads.toReversed().map((head) => element("option", { value: head }, partName(head))));
  byId("correction").hidden = info.remembered < 0 || Boolean(info.changes);
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  byId("words").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); }
  });
  byId("missing").addEventListener("input", suggest);
  byId("add-missing").addEventListener("click", addMissing);
  byId("save").addEventListener("click", save);
}

async function ask() {
  const words = byId("words").value;
  if (!words.trim()) return;
  notice("");
  try {
    const answer = await call("POST", "/v1/predict", { texts: [words], k: Number(byId("k").value), head: byId("head").value, explain: true });
    asked = words;
    verdicts = new Map();
    show(answer.predictions[0]);
  } catch (error) {
    notice(error.message);
  }
}

function show(prediction) {
  const parts = [...new Set(prediction.labels.flatMap((label) => Object.keys(label.parts ?? {})))];
  const strength = (label) => Object.values(label.parts ?? {}).reduce((sum, value) => sum + Math.max(0, value), 0);
  const most = Math.max(1e-9, ...prediction.labels.map(strength));
  byId("legend").replaceChildren(...parts.map((part, n) => element("li", {}, element("i", { class: `part-${n % 6}` }), partName(part))));
  byId("found").replaceChildren(...prediction.labels.map((label) => line(label, parts, most)));
  byId("answer-title").textContent = prediction.labels.length ? "Labels" : "No label was found";
  byId("answer").hidden = false;
  const near = prediction.neighbours ?? [];
  byId("near").hidden = !near.length;
  byId("neighbours").replaceChildren(...near.map((each) => element("li", {},
    element("strong", {}, each.text ?? "A training text"), ` (${each.score.toFixed(2)}): ${each.labels.join(" · ")}`)));
  showAccepted();
  byId("answer-title").focus();
}

function line(label, parts, most) {
  const bar = element("div", { class: "bar", role: "img", "aria-label": parts.map((part) => `${partName(part)} ${(label.parts?.[part] ?? 0).toFixed(2)}`).join(", ") });
  parts.forEach((part, n) => {
    const piece = element("span", { class: `part-${n % 6}`, title: `${partName(part)}: ${(label.parts?.[part] ?? 0).toFixed(3)}` });
    piece.style.width = `${100 * Math.max(0, label.parts?.[part] ?? 0) / most}%`;
    bar.append(piece);
  });
  const name = element("span", { class: "name" }, label.text);
  const yes = element("button", { type: "button", class: "quiet yes", "aria-pressed": "false", "aria-label": `Accept ${label.text}` }, "✓");
  const no = element("button", { type: "button", class: "quiet no", "aria-pressed": "false", "aria-label": `Reject ${label.text}` }, "✗");
  const judge = (right) => {
    const before = verdicts.get(label.id);
    if (before?.right === right) verdicts.delete(label.id); else verdicts.set(label.id, { text: label.text, right });
    const now = verdicts.get(label.id)?.right;
    yes.setAttribute("aria-pressed", String(now === true));
    no.setAttribute("aria-pressed", String(now === false));
    name.classList.toggle("rejected", now === false);
    showAccepted();
  };
  yes.addEventListener("click", () => judge(true));
  no.addEventListener("click", () => judge(false));
  const seen = label.count ? `${count(label.count)} training text${label.count === 1 ? "" : "s"}` : "added since training";
  const canCorrect = !byId("correction").hidden;
  return element("li", {},
    element("div", {}, name, " ", element("span", { class: "about" }, `${label.id} · ${seen}`)),
    element("div", { class: "score" }, label.score.toFixed(3), canCorrect ? element("div", { class: "verdict" }, yes, no) : ""),
    bar);
}

function showAccepted() {
  const right = [...verdicts].filter(([, verdict]) => verdict.right);
  byId("accepted").replaceChildren(...right.map(([, verdict]) => element("li", {}, verdict.text)));
  byId("save").disabled = !right.length;
}

async function suggest() {
  const words = byId("missing").value.trim();
  if (words.length < 2) return;
  try {
    const page = await call("GET", address("/v1/labels", { search: words, limit: 12, order: "frequent" }));
    byId("known-labels").replaceChildren(...page.labels.map((label) => element("option", { value: label.id }, label.text)));
  } catch (error) {
    notice(error.message);
  }
}

async function addMissing() {
  const words = byId("missing").value.trim();
  if (!words) return;
  try {
    const page = await call("GET", address("/v1/labels", { search: words, limit: 50 }));
    const label = page.labels.find((each) => each.id === words) ?? (page.total === 1 ? page.labels[0] : null);
    if (!label) { notice("Choose one label: type its id, or words that only it has."); return; }
    verdicts.set(label.id, { text: label.text, right: true });
    byId("missing").value = "";
    notice("");
    showAccepted();
  } catch (error) {
    notice(error.message);
  }
}

async function save() {
  const labels = [...verdicts].filter(([, verdict]) => verdict.right).map(([id]) => id);
  try {
    await call("POST", "/v1/memory", { examples: [{ text: asked, labels }] });
    await ask();
    notice("The correction is remembered; the labels below are the new answer.");
  } catch (error) {
    notice(error.message);
  }
}

// What the page knows about the run, read once and again when it changes; names of heads and parts.

import * as api from "./api.js";

export const HEADS = {
  dual: "label text",
  classifier: "classifier",
  combined: "label text and classifier",
  ensemble: "all parts",
};
export const PARTS = {
  dual: "label text",
  classifier: "classifier",
  votes: "near texts",
  lexical: "exact words",
  frequency: "frequency",
};

let told = null;

/** `{info, report}` of the run. */
export async function know(anew = false) {
  if (told === null || anew) {
    const [info, report] = await Promise.all([api.info(), api.report()]);
    told = { info, report };
  }
  return told;
}

export const known = () => told;

/** How frequent a label is: 0 (head) to 4 (tail), and a word for it. */
export function frequency(count) {
  if (count === 0) return { place: 5, word: "never in training" };
  const bins = told?.report.bins ?? [];
  const found = bins.findIndex((bin) => count >= bin.least);
  const last = Math.max(1, bins.length - 1);
  const place = Math.round((4 * (found < 0 ? last : found)) / last);
  return { place, word: ["head", "frequent", "middling", "rare", "tail"][place] };
}

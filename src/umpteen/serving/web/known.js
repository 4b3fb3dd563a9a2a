// Information about the run, read once and again after a change; names of heads and scorers.

import * as api from "./api.js";

/** Scorers in the order of their colours, each with what it looks at. */
export const SCORERS = {
  dual: "label text",
  classifier: "training texts of the label",
  knn: "similar examples",
  lexical: "words",
  backlinks: "links in the other direction",
  names: "name of the label",
  frequency: "how frequent the label is",
  reranker: "text and label together",
};

let loaded = null;

/** `{info, report}` of the run. */
export async function know(again = false) {
  if (loaded === null || again) {
    const [info, report] = await Promise.all([api.info(), api.report()]);
    loaded = { info, report };
  }
  return loaded;
}

export const known = () => loaded;

/** How frequent a label is: 0 (head) to 4 (tail), and a word for it. */
export function frequency(count) {
  if (count === 0) return { place: 5, word: "not in training" };
  const bins = loaded?.report.bins ?? [];
  const found = bins.findIndex((bin) => count >= bin.min);
  const last = Math.max(1, bins.length - 1);
  const place = Math.round((4 * (found < 0 ? last : found)) / last);
  return { place, word: ["head", "frequent", "middling", "rare", "tail"][place] };
}

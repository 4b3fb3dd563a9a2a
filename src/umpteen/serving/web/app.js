// The page's start: which view is shown, what is known of the run, the two dialogs.

import { hasToken, useToken } from "./api.js";
import { find, plural, show } from "./dom.js";
import { askToken, attempt, tokenGiven } from "./faults.js";
import * as keys from "./keys.js";
import { known, know } from "./known.js";
import * as labels from "./labels.js";
import * as predict from "./predict.js";
import * as review from "./review.js";
import * as run from "./run.js";

const VIEWS = { predict, labels, run, review };
const TITLES = { predict: "Predict", labels: "Labels", run: "Run", review: "Review" };

function current() {
  const named = location.hash.slice(1);
  return named in VIEWS ? named : "predict";
}

async function open() {
  const view = current();
  for (const name of Object.keys(VIEWS)) show(find(`view-${name}`), name === view);
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[view]} · umpteen`;
  await fill(view);
}

async function fill(view) {
  const place = find(view === "predict" ? "predict-fault" : `${view}-fault`);
  if (known() === null && !(await attempt(place, () => know(), () => fill(view)))) return;
  tellAbout();
  if (view === current()) VIEWS[view].prepare();
}

function tellAbout() {
  const { info } = known();
  find("about").textContent = `${info.name} (${info.model}): ${plural(info.n_labels, "label")}`;
  find("version").textContent = `umpteen ${info.umpteen}`;
}

function setUpDialogs() {
  find("open-token").addEventListener("click", () =>
    askToken(hasToken() ? "A token is in use. Another one replaces it, an empty one removes it." : ""));
  find("token-cancel").addEventListener("click", () => find("token-dialog").close());
  find("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    useToken(find("token").value);
    find("token").value = "";
    find("token-dialog").close();
    tokenGiven();
  });
  find("open-keys").addEventListener("click", () => find("keys-dialog").showModal());
  find("keys-close").addEventListener("click", () => find("keys-dialog").close());
}

function start() {
  for (const view of Object.values(VIEWS)) view.setUp();
  keys.setUp(current);
  setUpDialogs();
  window.addEventListener("known", tellAbout);
  window.addEventListener("hashchange", async () => {
    await open();
    window.scrollTo(0, 0);
    find("main").focus({ preventScroll: true });
  });
  open();
  if (current() === "predict") find("text").focus();
}

start();

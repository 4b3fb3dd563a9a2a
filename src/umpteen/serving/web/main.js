// Starts the sections and shows one of them at a time.

import { call } from "./service.js";
import { byId, notice } from "./draw.js";
import { start as startPredict } from "./predict.js";
import { start as startLabels } from "./labels.js";
import { start as startRun } from "./run.js";

const SECTIONS = ["text", "labels", "run"];

function show() {
  const wanted = location.hash.slice(1);
  const section = SECTIONS.includes(wanted) ? wanted : "text";
  for (const name of SECTIONS) byId(name).hidden = name !== section;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${section}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  notice("");
  scrollTo(0, 0); // the address names a section, and the browser would hide the head of the page
}

async function start() {
  show();
  addEventListener("hashchange", show);
  try {
    const info = await call("GET", "/v1/info");
    startRun(info);
    startPredict(info);
    startLabels(info);
    document.documentElement.dataset.ready = "yes";
    if (byId("text").hidden === false) byId("words").focus();
  } catch (error) {
    notice(error.message);
  }
}

start();

// What went wrong, as a sentence where it went wrong; with a way on: wait, a token, or try again.

import { Fault } from "./api.js";
import { find, make } from "./dom.js";

const MAX_WAITS = 3;
const waits = new WeakMap(); // place -> how often it has waited for a busy service
const clocks = new WeakMap();
let afterToken = null;

/** Do something and show its failure in a place; `again` is called to repeat it. */
export async function attempt(place, work, again = null) {
  clear(place);
  try {
    const value = await work();
    waits.delete(place);
    return value;
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (!(error instanceof Fault)) throw error;
    if (error.status === 401) askToken(error.message, again);
    show(place, error, again);
    return undefined;
  }
}

export function clear(place) {
  window.clearInterval(clocks.get(place));
  place.replaceChildren();
}

function show(place, fault, again) {
  const words = make("span", {}, fault.message);
  const box = make("div", { class: "fault", role: "alert" }, words);
  const repeat = () => { clear(place); again(); };
  if (again) box.append(make("button", { type: "button", class: "quiet", onclick: repeat }, "Try again"));
  place.replaceChildren(box);
  const waited = waits.get(place) ?? 0;
  if (fault.status !== 429 || !again || waited >= MAX_WAITS) return;
  waits.set(place, waited + 1);
  let left = Math.max(1, fault.retryAfter);
  const clock = make("span", { "aria-hidden": "true" }, ` Trying again in ${left} s.`);
  words.append(clock);
  clocks.set(place, window.setInterval(() => {
    left -= 1;
    clock.textContent = ` Trying again in ${left} s.`;
    if (left <= 0) repeat();
  }, 1000));
}

/** Ask for a token; what needed it is done again afterwards. */
export function askToken(why, again = null) {
  afterToken = again;
  find("token-why").textContent = why;
  const dialog = find("token-dialog");
  if (!dialog.open) dialog.showModal();
  find("token").focus();
}

export function tokenGiven() {
  const again = afterToken;
  afterToken = null;
  if (again) again();
}

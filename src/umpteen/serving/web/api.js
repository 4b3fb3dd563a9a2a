// Requests to the service. Every failure is a Fault with a sentence to show.

let token = "";

export function useToken(value) {
  token = value.trim();
}

export const hasToken = () => token !== "";

export class Fault extends Error {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function call(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, {
      method, headers, signal, credentials: "omit",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault("The service cannot be reached. Is it still running?");
  }
  const value = await answer.json().catch(() => null);
  if (answer.ok && value !== null) return value;
  const said = value?.error?.message ?? "The response of the service cannot be read";
  const wait = Number(answer.headers.get("Retry-After")) || 0;
  throw new Fault(sentence(said), answer.status, wait);
}

/** Words as a sentence: a capital letter first, a full stop last. */
export function sentence(words) {
  const whole = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

const query = (values) => new URLSearchParams(values).toString();

export const info = () => call("/v1/info");
export const report = () => call("/v1/report");
export const predict = (body, signal) =>
  call("/v1/predict", { method: "POST", body: { ...body, explain: true }, signal });
export const labels = (values, signal) => call(`/v1/labels?${query(values)}`, { signal });
export const addLabel = (label) =>
  call("/v1/labels", { method: "POST", body: { labels: [label] } });
export const retire = (id) => call("/v1/labels/retire", { method: "POST", body: { ids: [id] } });
export const restore = (id) => call("/v1/labels/restore", { method: "POST", body: { ids: [id] } });
export const suggest = (body) => call("/v1/suggest", { method: "POST", body });
export const addExample = (text, ids) =>
  call("/v1/examples", { method: "POST", body: { examples: [{ text, labels: ids }] } });

// Talks to the service; asks for a token when one is needed. Nothing is drawn here.

const KEY = "umpteen-token";

async function once(method, path, body) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers["Authorization"] = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
}

function askForToken() {
  const box = document.getElementById("token-box");
  const field = document.getElementById("token");
  return new Promise((resolve) => {
    box.addEventListener("close", () => {
      const given = box.returnValue === "go" ? field.value.trim() : "";
      field.value = "";
      if (given) sessionStorage.setItem(KEY, given);
      resolve(Boolean(given));
    }, { once: true });
    if (!box.open) box.showModal();
  });
}

export async function call(method, path, body) {
  let answer;
  try {
    answer = await once(method, path, body);
    if (answer.status === 401 && await askForToken()) answer = await once(method, path, body);
  } catch (error) {
    throw new Error("The service does not answer. Is it still running?", { cause: error });
  }
  const value = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(value?.error?.message ?? `The service answered with ${answer.status}.`);
  return value;
}

export function address(path, fields) {
  return `${path}?${new URLSearchParams(fields)}`;
}

/** Calls of the REST API. */

const BASE = new URL("api/v1/", document.baseURI);
const TOKEN = "pathe-token";
let token = null;
try {
  token = sessionStorage.getItem(TOKEN);
} catch {
  // Storage may be blocked: the token is then asked for once per load.
}

export const hasToken = () => Boolean(token);

export function keepToken(value) {
  token = value;
  try {
    sessionStorage.setItem(TOKEN, value);
  } catch {
    // It still holds until the page is loaded again.
  }
}

/** An answer of the server that isn't a result, in words. */
export class ApiError extends Error {
  constructor(status, detail, wait = null) {
    super(sentence(status, detail, wait));
    this.status = status;
  }
}

function sentence(status, detail, wait) {
  const more = detail ? ` ${detail}` : "";
  if (status === 0) return "The server can't be reached. Is it still running?";
  if (status === 401) return "This server asks for a token.";
  if (status === 429) return `The server is busy. Try again in ${wait ?? "a few"} seconds.`;
  if (status === 504) return `This took too long, so the server stopped it.${more}`;
  if (detail) return detail[0].toUpperCase() + detail.slice(1);
  return `The server answered with error ${status}.`;
}

/** @param {string} path below /api/v1/ */
export function url(path, query = {}) {
  const found = new URL(path, BASE);
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") found.searchParams.set(key, String(value));
  }
  return found;
}

/** @param {{body?: unknown, signal?: AbortSignal}} options with a body, the call is a POST */
export async function request(where, { body, signal } = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init = { headers, signal, method: body === undefined ? "GET" : "POST" };
  if (body !== undefined) init.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(where, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "");
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new ApiError(answer.status, problem.detail ?? "", answer.headers.get("Retry-After"));
}

export const graphs = (signal) => request(url("graphs"), { signal }).then((r) => r.json());

/**
 * Calls for one graph, or a visitor's own copy of it.
 * @param {string} graph
 * @param {{add: string[][], remove: string[][]}} changes
 * @param {AbortSignal} signal ends all calls when another view is shown
 */
export function client(graph, changes, signal) {
  const base = `graphs/${encodeURIComponent(graph)}`;
  const changed = changes.add.length + changes.remove.length > 0;
  const at = async (path, query, own) =>
    url(`${base}${path && "/"}${path}`, own && changed ? { ...query, overlay: await overlay(base, changes) } : query);

  async function call(path, query, body, own = signal, changedGraph = true) {
    const options = { body, signal: own };
    try {
      return await (await request(await at(path, query, changedGraph), options)).json();
    } catch (error) {
      // The server keeps a limited number of changed graphs, so this one may have to be sent again.
      if (!(changed && changedGraph && error.status === 404)) throw error;
      overlays.clear();
      return (await request(await at(path, query, changedGraph), options)).json();
    }
  }

  return {
    changed,
    get: (path, query = {}, own = signal) => call(path, query, undefined, own),
    /** The same from the graph without changes. */
    unchanged: (path, query = {}) => call(path, query, undefined, signal, false),
    post: (path, body, own = signal) => call(path, {}, body, own),
    /** Changes the graph for everyone; the server wants a token for it. */
    write: (facts) => call("facts", {}, body(facts), signal, false),
    /** The address of a result, for a download. */
    address: (path, query = {}) => at(path, query, true),
    /** Sends the changed facts, so that a problem with them is found before other calls. */
    ready: () => (changed ? overlay(base, changes) : null),
  };
}

const overlays = new Map();

/** Changed facts as the server reads them. */
function body(changes) {
  const facts = (kind) => changes[kind].map(([head, relation, tail]) => ({ head, relation, tail }));
  return { add: facts("add"), remove: facts("remove") };
}

function overlay(base, changes) {
  const key = base + JSON.stringify(changes);
  if (!overlays.has(key)) {
    const sent = request(url(`${base}/overlays`), { body: body(changes) })
      .then((r) => r.json())
      .then((r) => r.overlay);
    sent.catch(() => overlays.delete(key));
    overlays.set(key, sent);
  }
  return overlays.get(key);
}

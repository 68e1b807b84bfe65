// Asking the server. An answer comes with when it came, because what it says of leases counts from there.

import { change, emit, state } from "./state.js";
import { accessToken } from "./token.js";

const PATIENCE = 10_000; // ms until a request counts as unanswered

/** What the server answered instead: a problem, with its status. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || `the server answered ${status}`);
    this.status = status;
  }
}

/** There was no answer, or none from a server that works. */
export class Unreachable extends Error {}

/** Fetch something in our name, past every cache. */
export function request(path, { headers, ...options }) {
  const token = accessToken();
  const signed = token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
  return fetch(path, { ...options, headers: signed, cache: "no-store", credentials: "omit" });
}

/** Return the path of a lock. */
export const lockPath = (key, what = "") => `/v1/locks/${encodeURIComponent(key)}${what}`;

/** Return the path of a piece of work. */
export const workPath = (key) => `/v1/work/${encodeURIComponent(key)}`;

/** Tell whether a browser can ask for a key: it takes a segment of dots for a step up, however it is written. */
export const isAskable = (key) => key !== "." && key !== "..";

/** Return a query string of what is neither empty nor missing. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

export const get = (path, signal) => ask("GET", path, undefined, signal);
export const post = (path, body) => ask("POST", path, body);
export const remove = (path) => ask("DELETE", path);

async function ask(method, path, body, signal) {
  const limit = AbortSignal.timeout(PATIENCE);
  const options = {
    method,
    headers: { Accept: "application/json", ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  };
  let response, answer;
  try {
    response = await request(path, options);
    answer = await response.json().catch((error) => {
      if (error instanceof SyntaxError) return {};
      throw error;
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw lost(limit.aborted ? `no answer within ${PATIENCE / 1000} s` : "the server cannot be reached");
  }
  if (response.ok) {
    if (state.failing && path !== "/v1/server") change({ failing: "" }); // of itself it can tell without its store
    return { ...answer, cameAt: performance.now() };
  }
  if (response.status === 401) emit("refused", answer.detail);
  else if (response.status >= 500 && answer.error) change({ failing: answer.detail });
  else if (response.status >= 500) throw lost(`the server answered ${response.status}`); // or somebody in its place
  throw new Problem(response.status, answer);
}

function lost(why) {
  emit("unreachable", why);
  return new Unreachable(why);
}

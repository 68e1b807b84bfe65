// Whether there is a server: asks it who it is, notices when it is gone, and tries again until it is back. And whether
// it is ready: one that can only read answers everything here, while nobody can take a lock.

import { get, Problem, request } from "./api.js";
import { change, emit, on, state } from "./state.js";

const CHECK = 10_000; // ms between looks at the server itself, while all is well
const READY = 3_000; // ms between looks whether it is ready, and for it to say so
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8_000;

let timer = 0;
let pause = FIRST_PAUSE;
let asking = null;
let readyTimer = 0;

/** Ask the server who it is and who we are. Everything else follows from the answer. */
export function connect() {
  clearTimeout(timer);
  return (asking ??= hello().finally(() => (asking = null)));
}

async function hello() {
  if (state.link === "offline") change({ nextTry: 0 });
  try {
    const server = await get("/v1/server");
    const was = state.link;
    pause = FIRST_PAUSE;
    const { cameAt, draining } = server;
    change({ server, serverAt: cameAt, link: "online", since: null, trouble: "", draining: Boolean(draining) });
    timer = setTimeout(() => document.hidden || connect(), CHECK);
    if (was !== "online") {
      emit("connected");
      lookReady();
    }
  } catch (error) {
    // Without an answer, or signed out, the listeners below have been called; other problems are told like those.
    if (error instanceof Problem && error.status !== 401) emit("unreachable", error.message);
  }
}

async function lookReady() {
  clearTimeout(readyTimer);
  if (state.link !== "online") return; // it begins again with the connection
  if (!document.hidden) {
    const unready = await whyNotReady();
    if (unready !== state.unready) change({ unready });
  }
  clearTimeout(readyTimer);
  readyTimer = setTimeout(lookReady, READY);
}

/** Return why no lock can be taken; nothing if one can, and null if we cannot find out. */
async function whyNotReady() {
  const signal = AbortSignal.timeout(READY);
  try {
    const response = await request("/readyz", { headers: { Accept: "application/json" }, signal });
    const { status, detail } = await response.json();
    if (status === "not ready" && !state.draining) return detail ?? "it does not say why";
    return status === "ready" || status === "not ready" ? "" : null;
  } catch (error) {
    return error.name === "TimeoutError" ? `no answer within ${READY / 1000} s` : null; // lost, or a proxy's answer
  }
}

on("unreachable", (trouble) => {
  if (state.link === "signed-out") return;
  if (state.link === "offline" && state.nextTry > performance.now()) return; // others failed with it
  clearTimeout(timer);
  timer = setTimeout(() => document.hidden || connect(), pause);
  change({ link: "offline", trouble, since: state.since ?? new Date(), nextTry: performance.now() + pause });
  pause = Math.min(pause * 1.7, LONGEST_PAUSE) * (0.9 + Math.random() * 0.2);
});

on("refused", (detail) => {
  clearTimeout(timer);
  change({ link: "signed-out", server: null, since: null, trouble: detail ?? "" });
});

// A tab that comes back, or a machine that wakes up, need not wait for the next try.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && (state.link === "offline" || state.link === "online")) connect();
});
window.addEventListener("online", () => state.link === "offline" && connect());

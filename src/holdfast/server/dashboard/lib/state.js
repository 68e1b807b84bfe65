// What the whole page knows: the server, who we are, whether we are connected. Parts listen for changes.

const listeners = new Map();

export const state = {
  server: null, // the last answer of GET /v1/server
  serverAt: 0, // performance.now() when it came
  link: "starting", // starting, online, offline, signed-out
  since: null, // a Date: when the connection was lost
  nextTry: 0, // performance.now() of the next try to connect
  trouble: "", // why the connection was lost
  failing: "", // why the server, which is there, does not answer: its store may be gone
  unready: "", // why no lock can be taken or renewed, even if all can be read; null if that is not known
  stream: "off", // off, connecting, live, denied
  draining: false,
};

/** Call `listener` whenever something of this name happens. Return how to stop that. */
export function on(name, listener) {
  if (!listeners.has(name)) listeners.set(name, new Set());
  listeners.get(name).add(listener);
  return () => listeners.get(name).delete(listener);
}

export function emit(name, detail) {
  for (const listener of listeners.get(name) ?? []) listener(detail);
}

/** Change something that everybody may look at, and say so. */
export function change(values) {
  Object.assign(state, values);
  emit("change");
}

/** Return the time on the store's clock, by the last answer and our own stop-watch; never by our calendar. */
export function storeNow() {
  return state.server ? state.server.time + (performance.now() - state.serverAt) / 1000 : Date.now() / 1000;
}

export const isOnline = () => state.link === "online";

// Rights, as the server reads them: `verb:key` or `verb:prefix*`; admin gives all the others.

const rights = () => state.server?.principal?.rights ?? [];

function covers(right, verb, key) {
  const colon = right.indexOf(":");
  const [of, pattern] = [right.slice(0, colon), right.slice(colon + 1)];
  if (of !== verb && of !== "admin") return false;
  if (key === null) return true;
  return pattern.endsWith("*") ? key.startsWith(pattern.slice(0, -1)) : key === pattern;
}

/** Tell whether we may use a verb on a key; without one, on any. Only to show less: the server decides. */
export const may = (verb, key = null) => rights().some((right) => covers(right, verb, key));

/** Tell whether there is nothing that we could do here: to offer work, one has to see it, too. */
export const isReadOnly = () => state.server !== null && !may("break") && !(may("acquire") && may("observe"));

// The event stream. EventSource cannot send an access token, so this reads the stream itself: a parser of
// server-sent events, resuming after the last one seen, and trying again with growing pauses.

import { request } from "./api.js";
import { change, emit, isOnline, on, state } from "./state.js";
import { connect } from "./connection.js";

const SILENCE = 40_000; // ms; the server says something every 15 s
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;

/** Return a function that takes pieces of a stream, and calls `onEvent({ id, event, data })` for each whole event. */
export function parser(onEvent) {
  let rest = "";
  let event = "";
  let data = [];
  let id;
  const line = (text) => {
    if (text === "") {
      if (id !== undefined || data.length) onEvent({ id, event: event || "message", data: data.join("\n") });
      [event, data, id] = ["", [], undefined];
      return;
    }
    const colon = text.indexOf(":");
    if (colon === 0) return; // a comment: the heartbeat
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (field === "id") id = value;
    else if (field === "event") event = value;
    else if (field === "data") data.push(value);
  };
  return (piece) => {
    const text = rest + piece;
    const end = text.endsWith("\r") ? text.length - 1 : text.length; // its \n may be in the next piece
    const lines = text.slice(0, end).split(/\r\n|\r|\n/);
    rest = lines.pop() + text.slice(end);
    lines.forEach(line);
  };
}

let lastId = null;
let running = null;
let pause = FIRST_PAUSE;
let timer = 0;

/** Follow the events after a place, until somebody signs out. Each is emitted as `event`. */
export function follow(after) {
  unfollow();
  lastId = String(after);
  open();
}

/** Return the place of the last event; null before the first. */
export const place = () => (lastId === null ? null : Number(lastId));

/** Go on where it broke off, if it did. */
export function reopen() {
  if (running === null) open();
}

function unfollow() {
  clearTimeout(timer);
  running?.abort();
  running = null;
  lastId = null;
  change({ stream: "off" });
}

on("signed-out", unfollow);

async function open() {
  clearTimeout(timer);
  const own = (running = new AbortController());
  change({ stream: "connecting" });
  let watchdog = 0;
  const alive = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => own.abort(), SILENCE);
  };
  let denied = false;
  try {
    alive();
    const headers = { Accept: "text/event-stream", "Last-Event-ID": lastId };
    const response = await request("/v1/events", { headers, signal: own.signal });
    if (response.status === 401) emit("refused");
    denied = response.status === 403;
    if (response.ok) await read(response.body.getReader(), alive);
  } catch {
    // Gone: however that came about, we try again.
  }
  clearTimeout(watchdog);
  if (running !== own) return; // somebody else follows now, or nobody is to
  running = null;
  if (denied) return change({ stream: "denied" });
  change({ stream: "connecting" });
  if (!isOnline()) return; // it is opened again with the connection
  timer = setTimeout(open, pause);
  pause = Math.min(pause * 2, LONGEST_PAUSE);
  connect(); // is it the server, or only the stream?
}

async function read(reader, alive) {
  const text = new TextDecoder();
  const take = parser(({ id, event, data }) => {
    if (id !== undefined) lastId = id;
    if (data) receive(event, data);
  });
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    pause = FIRST_PAUSE;
    if (state.stream !== "live") change({ stream: "live" });
    take(text.decode(value, { stream: true }));
  }
}

function receive(event, data) {
  let value;
  try {
    value = JSON.parse(data);
  } catch {
    return; // nothing that we know
  }
  if (event !== "goodbye") emit("event", value);
  else if (value.reason === "draining") change({ draining: true });
  else if (value.reason === "revoked") emit("refused", value.detail);
  else if (value.reason === "limit") pause = LONGEST_PAUSE;
}

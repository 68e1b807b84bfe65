// How numbers, times and foreign text are written for people.

const WHOLE = new Intl.NumberFormat("en");
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
const CLOCK = new Intl.DateTimeFormat(undefined, TIME);
const DAY = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

// Control characters, and those that are invisible or turn the direction of what stands around them.
const STRANGE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Return text with every character that could hide or pretend something made visible. */
export function clean(text) {
  return String(text ?? "").replace(STRANGE, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export const number = (value) => WHOLE.format(value);

/** Return `1 lock`, `2 locks`. */
export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

const two = (value) => String(value).padStart(2, "0");

/** Return a duration in whole units, in a form that is calm while it counts: `24 s`, `3m 05s`, `2h 03m`, `4d 02h`. */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 100) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two(Math.floor(whole / 60) % 60)}m`;
  return `${number(Math.floor(whole / 86400))}d ${two(Math.floor(whole / 3600) % 24)}h`;
}

/** Return a duration that has ended, with tenths where they matter. */
export const exactly = (seconds) => (seconds < 10 ? `${Math.max(0, seconds).toFixed(1)} s` : duration(seconds));

/** Return a time of the store's clock (seconds since the epoch) as a time of day here. */
export const clock = (at) => CLOCK.format(at * 1000);

export const day = (at) => DAY.format(at * 1000);

/** Return a time with its day. */
export const moment = (at) => `${day(at)}, ${clock(at)}`;

/** Return `host:pid`, `host` of who told no process (as curl does not), or nothing. */
export function place(who) {
  if (!who?.host && !who?.pid) return "";
  return who.pid ? `${clean(who.host)}:${who.pid}` : clean(who.host);
}

/** Return the words for a kind of event. */
export const kindText = (kind) => kind.replaceAll("_", " ");

/** Return the type of a key: what is before its first colon, if there is one. */
export function typeOf(key) {
  const colon = key.indexOf(":");
  return colon > 0 ? key.slice(0, colon).replaceAll("%3A", ":").replaceAll("%25", "%") : "";
}

/** Return what work is claimed by: its key up to the first colon; nothing if it has none. */
export const workType = (key) => (key.includes(":") ? key.slice(0, key.indexOf(":")) : "");

/** Return JSON to be read by people; as it is, if it is none. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2).split("\n").map(clean).join("\n");
  } catch {
    return clean(text);
  }
}

/** Return the address of a lock's page. */
export const lockLink = (key) => `#/lock/${encodeURIComponent(key)}`;

/** Return the address of a page about a piece of work. */
export const workLink = (key) => `#/work/${encodeURIComponent(key)}`;

// What a history means: which leases there were, from when to when, and how they ended. Pure, and easy to test.

const BEGINS = new Set(["granted", "handed_over", "assigned"]);
const ENDS = new Set(["released", "expired", "broken", "completed", "failed", "withdrawn", "returned", "abandoned"]);
const LANES = 8;
const SLOP = 5; // seconds: how much an age may differ from what a token tells

/** Return the leases that a history tells of, oldest first: `{ token, owner, from, to, end, lane }`.
 *
 * Usually only ends are kept. But a token is the microsecond of its grant, unless the store's clock went back, so a
 * lease whose beginning was not kept still has one. One without an end is held now, if the holders have its token.
 */
export function leases(events, holders, now) {
  const byToken = new Map();
  const lease = (token, owner) => {
    if (!byToken.has(token)) byToken.set(token, { token, owner, from: null, to: null, end: null });
    return byToken.get(token);
  };
  for (const { kind, token, owner, at } of events) {
    if (!token) continue;
    if (BEGINS.has(kind)) lease(token, owner).from = at;
    else if (ENDS.has(kind) && !(kind === "withdrawn" && byToken.get(token)?.owner !== owner)) {
      const found = lease(token, owner); // a waiter may have withdrawn as well: that ends no lease
      found.to ??= at; // an operation that is broken or expires has failed as well: the first is how it ended
      found.end ??= kind;
    }
  }
  for (const { token, owner, held_for: age } of holders) {
    const found = lease(token, owner);
    const exact = guess(token, now);
    found.from = exact !== null && Math.abs(exact - (now - age)) < SLOP ? exact : now - age;
    found.to = found.end = null;
  }
  const current = new Set(holders.map((holder) => holder.token));
  const found = [];
  for (const each of byToken.values()) {
    if (each.from === null) each.from = guess(each.token, each.to);
    if (each.to === null && !current.has(each.token)) continue; // its end was not kept
    if (each.from !== null) found.push({ ...each, to: each.to ?? now });
  }
  found.sort((a, b) => a.from - b.from);
  return inLanes(found);
}

function guess(token, to) {
  const at = token / 1e6;
  return at <= to && to - at < 400 * 86400 ? at : null;
}

/** Put leases that overlap one above the other. */
function inLanes(found) {
  const ends = [];
  for (const each of found) {
    let lane = ends.findIndex((end) => end <= each.from + 1e-6);
    if (lane < 0) lane = Math.min(ends.length, LANES - 1);
    ends[lane] = Math.max(ends[lane] ?? 0, each.to);
    each.lane = lane;
  }
  return found;
}

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000,
];

/** Return the times at which to draw a line: whole seconds, minutes, hours of the clock here. */
export function ticks(from, to, most) {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? 7776000;
  const shift = new Date(to * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) found.push(at);
  return { step, at: found };
}

/** Tell whether an event's token is its owner's, and not only the highest there was. */
export const hasToken = ({ kind, token }) =>
  token > 0 && !["queued", "resized", "deadlocked", "withdrawn"].includes(kind);

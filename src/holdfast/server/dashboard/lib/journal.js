// The events this page knows: the newest of the feed when it was opened, then all that come.

import { get, Problem, query } from "./api.js";
import { emit, isOnline, on } from "./state.js";
import { follow, place, reopen } from "./stream.js";

const KEPT = 3000;
const AT_FIRST = 500;
const LATER = 10_000; // ms, when the server would not

export const journal = []; // oldest first

/** Read the newest events and follow; or go on, if the connection was only lost. A new principal begins anew. */
async function resume() {
  try {
    const { after } = await get(`/v1/events${query({ limit: 1 })}`);
    if (place() !== null && place() <= after) return reopen();
    // Otherwise we know nothing yet, or its store is another one by now: in memory it begins with nothing.
    const recent = await get(`/v1/events${query({ after: Math.max(0, after - AT_FIRST), limit: AT_FIRST })}`);
    journal.length = 0;
    recent.events.forEach(add);
    emit("journal", recent.events.length);
    follow(recent.after);
    emit("following");
  } catch (error) {
    if (error instanceof Problem && error.status !== 401) setTimeout(() => isOnline() && resume(), LATER);
  }
}

function add(event) {
  journal.push(event);
  if (journal.length > KEPT) journal.splice(0, journal.length - KEPT);
}

on("connected", resume);
on("event", (event) => {
  add(event);
  emit("journal", 1);
});
on("signed-out", () => {
  journal.length = 0;
  emit("journal", 0);
});

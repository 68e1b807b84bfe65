// What rows of locks and of work have in common: a state, a key that is a link, and a blink when something changed.

import { h, mark, put } from "./dom.js";
import { cell } from "./virtual.js";

const FRESH = 1000; // ms: what changed longer ago, and is only scrolled to, is no news

/** Return an empty row: `act` is its button, `cells(slot)` returns what stands between the key and that. */
export function makeSlot(act, cells) {
  const slot = { word: h("span"), type: h("span", { class: "type" }), rest: h("span"), act };
  slot.link = h("a", { tabindex: -1 }, slot.type, slot.rest);
  slot.state = cell("state", h("i", { class: "dot" }), slot.word);
  slot.key = cell("key", slot.link);
  const parts = [slot.state, slot.key, ...cells(slot), cell("act", act)];
  slot.element = h("div", { class: "row", role: "row" }, ...parts);
  slot.element.addEventListener("animationend", () => slot.element.classList.remove("fresh"));
  return slot;
}

/** Show the key of a row, and have it blink if the row has changed just now. */
export function bindKey(slot, row, link) {
  if (slot.shows !== row) showKey(slot, row, link);
  if (!row.changedAt) return;
  if (performance.now() - row.changedAt < FRESH) slot.element.classList.add("fresh");
  row.changedAt = 0;
}

function showKey(slot, row, link) {
  slot.shows = row;
  slot.element.classList.remove("fresh");
  slot.element.dataset.key = row.key;
  const colon = row.type ? row.shown.indexOf(":") + 1 : 0;
  put(slot.type, row.shown.slice(0, colon));
  put(slot.rest, row.shown.slice(colon));
  slot.link.href = link(row.key);
  mark(slot.key, "title", row.shown);
}

/** Show how it stands: `states` has a word for each state, and what is to be known of it. */
export function bindState(slot, state, states) {
  const [word, meaning] = states[state];
  mark(slot.element, "data-state", state);
  put(slot.word, word);
  mark(slot.state, "title", meaning || null);
}

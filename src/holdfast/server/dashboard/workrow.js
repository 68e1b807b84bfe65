// One row of the list of work: its cells, and what they say.

import { h, mark, put } from "./dom.js";
import { clean, workLink } from "./format.js";
import { may } from "./state.js";

export const COLUMNS = [
  { name: "state", title: "State" },
  { name: "key", title: "Key", sort: "key" },
  { name: "who", title: "Instance" },
  { name: "tries", title: "Tries", sort: "tries", falls: true },
  { name: "age", title: "Since", sort: "age", falls: true },
  { name: "text", title: "Result or error" },
  { name: "act", title: "" },
];

const FRESH = 1000; // ms: what changed longer ago, and is only scrolled to, is no news

const STATES = {
  offered: ["offered", "To be claimed by an instance that does this type of work"],
  later: ["offered", "Offered, and not to be claimed before its time"],
  assigned: ["assigned", "An instance has it, and the lock of its key"],
  completed: ["completed", ""],
  failed: ["failed", "It failed, and is not tried again unless somebody offers it again"],
};

/** Return the word for a state, and what is to be known of it. */
export const workStateText = (state) => STATES[state];

/** Return an empty row. */
export function makeWorkRow() {
  const cell = (name, ...children) => h("div", { class: `cell ${name}`, role: "gridcell" }, ...children);
  const slot = {
    word: h("span"),
    type: h("span", { class: "type" }),
    rest: h("span"),
    who: h("a", { tabindex: -1 }),
    tries: cell("tries"),
    age: cell("age"),
    text: cell("text"),
  };
  slot.link = h("a", { tabindex: -1 }, slot.type, slot.rest);
  slot.act = h("button", { class: "small", tabindex: -1, "data-act": "offer" }, "Offer again…");
  slot.state = cell("state", h("i", { class: "dot" }), slot.word);
  slot.key = cell("key", slot.link);
  slot.element = h(
    "div",
    { class: "row", role: "row" },
    slot.state,
    slot.key,
    cell("who", slot.who),
    slot.tries,
    slot.age,
    slot.text,
    cell("act", slot.act),
  );
  slot.element.addEventListener("animationend", () => slot.element.classList.remove("fresh"));
  return slot;
}

/** Show a piece of work in a row. */
export function bindWorkRow(slot, row) {
  const { view } = row;
  if (slot.shows !== row) {
    slot.shows = row;
    slot.element.classList.remove("fresh");
    slot.element.dataset.key = row.key;
    const colon = row.type ? row.shown.indexOf(":") + 1 : 0;
    put(slot.type, row.shown.slice(0, colon));
    put(slot.rest, row.shown.slice(colon));
    slot.link.href = workLink(row.key);
    mark(slot.key, "title", row.shown);
  }
  put(slot.who, row.who);
  mark(slot.who, "href", view.instance ? `#/work?${new URLSearchParams({ instance: view.instance })}` : null);
  mark(slot.who, "title", view.instance ? clean(view.instance) : null);
  put(slot.tries, row.tries);
  const text = clean(view.text);
  put(slot.text, text);
  mark(slot.text, "title", text || null);
  mark(slot.act, "hidden", !(row.isOver && may("acquire", row.key)));
  tickWorkRow(slot, row);
  if (row.changedAt) {
    if (performance.now() - row.changedAt < FRESH) slot.element.classList.add("fresh");
    row.changedAt = 0;
  }
}

/** Count. */
export function tickWorkRow(slot, row) {
  const { state } = row;
  const [word, meaning] = STATES[state];
  mark(slot.element, "data-state", state);
  put(slot.word, word);
  mark(slot.state, "title", meaning || null);
  put(slot.age, row.when);
}

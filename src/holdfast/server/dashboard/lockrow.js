// One row of the list of locks: its cells, what they say, and how they count.

import { h, mark, put } from "./dom.js";
import { fleet } from "./fleet.js";
import { clean, duration, lockLink, number, place } from "./format.js";
import { isOnline, may } from "./state.js";

export const COLUMNS = [
  { name: "state", title: "State" },
  { name: "key", title: "Key", sort: "key" },
  { name: "mode", title: "Mode" },
  { name: "owner", title: "Owner" },
  { name: "where", title: "Host:pid" },
  { name: "age", title: "Held for", sort: "age", falls: true },
  { name: "left", title: "Lease left", sort: "left" },
  { name: "queue", title: "Waiting", sort: "queue", falls: true },
  { name: "act", title: "" },
];

const FRESH = 1000; // ms: what changed longer ago, and is only scrolled to, is no news

const STATES = {
  held: ["held", ""],
  shut: ["shut", "Its lease is over, and the terms of that keep it shut for a while (at least, lock-delay)"],
  handed: ["handed over", "It was handed to the next in line, who has not claimed it yet"],
  expired: ["expired", "Its lease is over. That takes effect when somebody asks for the lock, or with the next sweep"],
  free: ["free", ""],
};

/** Return the word for a state, and what is to be known of it. */
export const stateText = (state) => STATES[state];

/** Return how a lock is held, if it is not simply exclusive: `[words, explanation]`. */
export function modeText(view) {
  if (view.operation) return ["operation", "Done once for all who wait: they are told how it ends"];
  if (view.mode === "shared") return ["shared", `Held by ${number(view.holds)} together`];
  if (view.permits) {
    return [
      `${number(view.taken)} of ${number(view.permits)}`,
      `A semaphore: ${number(view.taken)} of its ${number(view.permits)} permits are taken`,
    ];
  }
  return ["", ""];
}

/** Return an empty row. */
export function makeRow() {
  const cell = (name, ...children) => h("div", { class: `cell ${name}`, role: "gridcell" }, ...children);
  const slot = {
    dot: h("i", { class: "dot" }),
    word: h("span"),
    type: h("span", { class: "type" }),
    rest: h("span"),
    chip: h("span", { class: "chip" }),
  };
  slot.link = h("a", { tabindex: -1 }, slot.type, slot.rest);
  slot.owner = cell("owner");
  slot.where = cell("where");
  slot.age = cell("age");
  slot.bar = h("i");
  slot.left = h("span", { class: "count" });
  slot.queue = h("span", { class: "count" });
  slot.act = h("button", { class: "small danger", tabindex: -1, "data-act": "break" }, "Break…");
  slot.state = cell("state", slot.dot, slot.word);
  slot.key = cell("key", slot.link);
  slot.actCell = cell("act", slot.act);
  slot.element = h(
    "div",
    { class: "row", role: "row" },
    slot.state,
    slot.key,
    cell("mode", slot.chip),
    slot.owner,
    slot.where,
    slot.age,
    cell("left", h("i", { class: "bar" }, slot.bar), slot.left),
    cell("queue", slot.queue),
    slot.actCell,
  );
  slot.element.addEventListener("animationend", () => slot.element.classList.remove("fresh"));
  return slot;
}

/** Show a lock in a row. */
export function bindRow(slot, row) {
  const { view, state } = row;
  const isOther = slot.shows !== row;
  slot.shows = row;
  if (isOther) {
    slot.element.classList.remove("fresh");
    slot.element.dataset.key = row.key;
    const colon = row.type ? row.shown.indexOf(":") + 1 : 0;
    put(slot.type, row.shown.slice(0, colon));
    put(slot.rest, row.shown.slice(colon));
    slot.link.href = lockLink(row.key);
    mark(slot.key, "title", row.shown);
  }
  const [word, meaning] = stateText(state);
  mark(slot.element, "data-state", state);
  put(slot.word, word);
  mark(slot.state, "title", meaning || null);
  const [mode, explained] = modeText(view);
  put(slot.chip, mode);
  mark(slot.chip, "title", explained || null);
  mark(slot.chip, "data-mode", view.operation ? "operation" : view.permits ? "permits" : view.mode);
  put(slot.owner, fleet.nameOf(view.holder?.owner));
  mark(slot.owner, "title", clean(view.holder?.owner) || null);
  put(slot.where, place(view.holder));
  mark(slot.where, "title", place(view.holder) || null);
  put(slot.queue, view.waiting ? number(view.waiting) : "");
  mark(slot.element, "data-waiting", view.waiting > 0);
  mark(slot.act, "hidden", !(view.holder && view.holds && may("break", row.key)));
  tickRow(slot, row, performance.now());
  if (row.changedAt) {
    if (performance.now() - row.changedAt < FRESH) slot.element.classList.add("fresh");
    row.changedAt = 0;
  }
}

/** Count. Without a connection an end that has come says nothing: the lease may have been renewed. */
export function tickRow(slot, row, now) {
  const isHeld = row.view.state === "held";
  const left = row.left(now);
  put(slot.age, row.view.holder ? duration(row.age(now)) : "");
  put(slot.left, !isHeld ? "" : left > 0 || isOnline() ? duration(left) : "?");
  const share = isHeld ? Math.min(1, left / row.span).toFixed(3) : "0";
  if (slot.share !== share) {
    slot.share = share;
    slot.bar.style.transform = `scaleX(${share})`;
  }
  mark(slot.element, "data-late", isHeld && row.isLate(now));
}

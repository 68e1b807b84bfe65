// One row of the list of locks: its cells, what they say, and how they count.

import { fillBar, h, label, mark, put } from "../lib/dom.js";
import { fleet } from "../lib/fleet.js";
import { clean, duration, lockLink, number, place } from "../lib/format.js";
import { bindKey, bindState, makeSlot } from "../lib/listrow.js";
import { isOnline, may } from "../lib/state.js";
import { cell } from "../lib/virtual.js";

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

/** The words for how a lock stands, and what is to be known of each. */
export const LOCK_STATES = {
  held: ["held", ""],
  shut: ["shut", "Its lease is over, and the terms of that keep it shut for a while (at least, lock-delay)"],
  handed: ["handed over", "It was handed to the next in line, who has not claimed it yet"],
  expired: ["expired", "Its lease is over. That takes effect when somebody asks for the lock, or with the next sweep"],
  free: ["free", ""],
};

export const modeOf = (view) => (view.operation ? "operation" : view.permits ? "permits" : view.mode);

/** Return how a lock is held, if it is not simply exclusive: `[words, explanation]`. */
export function modeText(view) {
  if (view.operation) return ["operation", "Done once for all who wait: they are told how it ends"];
  if (view.mode === "shared") return ["shared", `Held by ${number(view.holds)} together`];
  if (!view.permits) return ["", ""];
  const [taken, permits] = [number(view.taken), number(view.permits)];
  return [`${taken} of ${permits}`, `A semaphore: ${taken} of its ${permits} permits are taken`];
}

/** Return an empty row. */
export function makeRow() {
  const act = h("button", { class: "small danger", tabindex: -1, "data-act": "break" }, "Break…");
  return makeSlot(act, (slot) => {
    slot.chip = h("span", { class: "chip" });
    for (const name of ["owner", "where", "age"]) slot[name] = cell(name);
    slot.bar = h("i");
    slot.left = h("span", { class: "count" });
    slot.queue = h("span", { class: "count" });
    const left = cell("left", h("i", { class: "bar" }, slot.bar), slot.left);
    return [cell("mode", slot.chip), slot.owner, slot.where, slot.age, left, cell("queue", slot.queue)];
  });
}

/** Show a lock in a row. */
export function bindRow(slot, row) {
  const { view } = row;
  bindKey(slot, row, lockLink);
  bindState(slot, row.state, LOCK_STATES);
  label(slot.chip, ...modeText(view));
  mark(slot.chip, "data-mode", modeOf(view));
  label(slot.owner, fleet.nameOf(view.holder?.owner), clean(view.holder?.owner));
  label(slot.where, place(view.holder));
  put(slot.queue, view.waiting ? number(view.waiting) : "");
  mark(slot.element, "data-waiting", view.waiting > 0);
  mark(slot.act, "hidden", !(view.holder && view.holds && may("break", row.key)));
  tickRow(slot, row, performance.now());
}

/** Count. Without a connection an end that has come says nothing: the lease may have been renewed. */
export function tickRow(slot, row, now) {
  const isHeld = row.view.state === "held";
  const left = row.left(now);
  put(slot.age, row.view.holder ? duration(row.age(now)) : "");
  put(slot.left, !isHeld ? "" : left > 0 || isOnline() ? duration(left) : "?");
  fillBar(slot.bar, isHeld ? left / row.span : 0);
  mark(slot.element, "data-late", isHeld && row.isLate(now));
}

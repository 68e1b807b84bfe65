// One row of the list of work: its cells, and what they say.

import { h, label, mark, put } from "../lib/dom.js";
import { clean, workLink } from "../lib/format.js";
import { bindKey, bindState, makeSlot } from "../lib/listrow.js";
import { may } from "../lib/state.js";
import { cell } from "../lib/virtual.js";

export const COLUMNS = [
  { name: "state", title: "State" },
  { name: "key", title: "Key", sort: "key" },
  { name: "who", title: "Instance" },
  { name: "tries", title: "Tries", sort: "tries", falls: true },
  { name: "age", title: "Since", sort: "age", falls: true },
  { name: "text", title: "Result or error" },
  { name: "act", title: "" },
];

/** The words for how work stands, and what is to be known of each. */
export const WORK_STATES = {
  offered: ["offered", "To be claimed by an instance that does this type of work"],
  later: ["offered", "Offered, and not to be claimed before its time"],
  assigned: ["assigned", "An instance has it, and the lock of its key"],
  completed: ["completed", ""],
  failed: ["failed", "It failed, and is not tried again unless somebody offers it again"],
};

/** Return an empty row. */
export function makeWorkRow() {
  const act = h("button", { class: "small", tabindex: -1, "data-act": "offer" }, "Offer again…");
  return makeSlot(act, (slot) => {
    slot.who = h("a", { tabindex: -1 });
    for (const name of ["tries", "age", "text"]) slot[name] = cell(name);
    return [cell("who", slot.who), slot.tries, slot.age, slot.text];
  });
}

/** Show a piece of work in a row. */
export function bindWorkRow(slot, row) {
  const { view } = row;
  bindKey(slot, row, workLink);
  label(slot.who, row.who, clean(view.instance));
  mark(slot.who, "href", view.instance ? `#/work?${new URLSearchParams({ instance: view.instance })}` : null);
  put(slot.tries, row.tries);
  label(slot.text, clean(view.text));
  mark(slot.act, "hidden", !(row.isOver && may("acquire", row.key)));
  tickWorkRow(slot, row);
}

/** Count. */
export function tickWorkRow(slot, row) {
  bindState(slot, row.state, WORK_STATES);
  put(slot.age, row.when);
}

// One lock: who has it and for how long yet, who waits, and what happened to it.

import { lockPath } from "../lib/api.js";
import { h, mark, put } from "../lib/dom.js";
import { fleet, isOfWork } from "../lib/fleet.js";
import { number, workLink } from "../lib/format.js";
import { may } from "../lib/state.js";
import { holderPanel, holdersOf } from "./holder.js";
import { getIfAny, ItemView } from "./item.js";
import { breakDialog, resizeDialog } from "./lockdialogs.js";
import { LOCK_STATES, modeOf, modeText } from "./lockrow.js";
import { Row } from "./lockset.js";
import { queuePanel } from "./queue.js";

// What there is to be said of a key that only its history knows.
const NOBODY = { token: 0, holder: null, expires_in: 0, holds: 0, waiting: 0, waiters: [], holders: [] };
const FORGOTTEN = { state: "free", mode: "exclusive", permits: 0, ...NOBODY };

const shortcut = { "aria-keyshortcuts": "b" };
const breakButton = h("button", { class: "danger", click: () => breakDialog(lockView.key), ...shortcut }, "Break…");
const resizeButton = h("button", { click: () => lockView.row && resizeDialog(lockView.row.view) }, "Resize…");
const toWork = h("a", { class: "button" }, "Its work");
const mode = h("span", { class: "chip" });
const holder = holderPanel();
const queue = queuePanel();

export const lockView = new ItemView({
  noun: "lock",
  label: "One lock",
  list: "Locks",
  command: "holdfast show",
  missing: ["Nothing is known of this key", "It was never used, or long ago."],
  states: LOCK_STATES,
  beside: [mode],
  buttons: [toWork, resizeButton, breakButton],
  panels: [holder.element, queue.element],
  find: (key) => getIfAny(lockPath(key)),

  draw(found, past) {
    if (!found && !past.items.length) return null;
    const view = found ?? { ...FORGOTTEN, key: this.key };
    const { cameAt } = found ?? past;
    this.row = (this.row ?? new Row(view.key)).take(view, cameAt, false);
    const holding = view.holds ? holdersOf(view) : [];
    put(mode, view.permits ? `semaphore, ${number(view.taken)} of ${number(view.permits)} taken` : modeText(view)[0]);
    mark(mode, "hidden", !mode.textContent);
    mark(mode, "data-mode", modeOf(view));
    mark(breakButton, "hidden", holding.length !== 1 || !may("break", view.key)); // of several, each has its own
    mark(resizeButton, "hidden", !view.permits || !may("admin", view.key));
    mark(toWork, "hidden", !past.items.some(isOfWork) && !fleet.byId.has(view.holder?.owner));
    toWork.href = workLink(view.key);
    holder.draw(this.row);
    queue.draw(view, cameAt);
    return view.state === "held" ? holding : [];
  },

  tick(now) {
    holder.tick(this.row, now);
    queue.tick(now);
  },
});

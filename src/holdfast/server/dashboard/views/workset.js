// The work that is shown. Its times are the store's, and so is the clock that they are compared with.

import { clean, duration, workType } from "../lib/format.js";
import { fleet } from "../lib/fleet.js";
import { storeNow } from "../lib/state.js";

// What has failed first: it must not be what is left out. What is claimed while we read is in one list, or in both.
const STATES = { open: ["failed", "assigned", "offered", "assigned"], completed: ["completed"], all: [""] };

/** One piece of work, kept through refreshes: what is drawn of it changes in place. */
export class WorkRow {
  constructor(key) {
    this.key = key;
    this.type = workType(key);
    this.shown = clean(key);
    this.changedAt = 0; // when it was seen to have changed
  }

  take(view, cameAt, isNews) {
    const before = this.view;
    const isSame = before && before.state === view.state && before.token === view.token && before.tries === view.tries;
    if (!isSame && isNews) this.changedAt = cameAt;
    this.view = view;
    this.who = view.instance ? fleet.nameOf(view.instance) : "";
    this.text = `${this.key} ${this.who} ${view.instance} ${view.text}`.toLowerCase();
    return this;
  }

  /** Return the seconds that it is as it is; below 0 if it is offered for later. */
  age(now = storeNow()) {
    return now - ((this.view.state === "assigned" && this.view.assigned_at) || this.view.due_at);
  }

  /** Return the word for how it stands. */
  get state() {
    return this.view.state === "offered" && this.age() < 0 ? "later" : this.view.state;
  }

  get isOver() {
    return this.view.state === "completed" || this.view.state === "failed";
  }

  /** Return since when, in words. */
  get when() {
    const age = this.age();
    if (this.view.state !== "offered") return `${duration(age)}${this.isOver ? " ago" : ""}`;
    return age < 0 ? `in ${duration(Math.ceil(-age))}` : duration(age);
  }

  get tries() {
    const { tries, max_tries: most } = this.view;
    return most ? `${tries} of ${most}` : tries ? String(tries) : "";
  }
}

/** What a set of work is made of. */
export const WORKS = { path: "/v1/work", items: "works", states: STATES, Row: WorkRow };

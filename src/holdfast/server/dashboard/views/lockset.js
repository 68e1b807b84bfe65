// The locks that are shown, with the end of each lease on our own stop-watch.

import { fleet } from "../lib/fleet.js";
import { clean, typeOf } from "../lib/format.js";

const USUAL = 30; // seconds: the ttl of most leases, to compare with until this one's was seen
const YOUNG = 2; // seconds
const LATE = 5; // seconds, or a quarter of the ttl: clients renew long before
// Expired first: they are few, and must not be what is left out.
const STATES = { use: ["expired", "held"], free: ["free"], all: [""] };

/** One lock, kept through refreshes: what is drawn of it changes in place. */
export class Row {
  constructor(key) {
    this.key = key;
    this.type = typeOf(key);
    this.shown = clean(key);
    this.ttl = 0;
    this.changedAt = 0; // when it was seen to have changed hands
  }

  take(view, cameAt, isNews) {
    const before = this.view;
    const isSame = before !== undefined && before.holder?.token === view.holder?.token;
    if (!isSame) {
      if (view.mode === "exclusive") this.ttl = 0; // several who share it come and go
      if (isNews) this.changedAt = cameAt;
    }
    const end = cameAt + view.expires_in * 1000;
    // No lock tells its ttl. But a lease that has just begun, or was just renewed, shows it.
    const isFull = view.holder?.claimed && (view.holder.held_for < YOUNG || (before?.holder && end > this.end + 500));
    if (isFull) this.ttl = Math.max(this.ttl, view.expires_in);
    this.view = view;
    this.cameAt = cameAt;
    this.end = end;
    this.since = view.holder ? cameAt - view.holder.held_for * 1000 : 0;
    this.span = Math.max(view.expires_in, this.ttl || USUAL);
    const { owner = "", host = "", pid = "" } = view.holder ?? {};
    const who = `${owner} ${fleet.nameOf(owner)} ${host}:${pid}`;
    if (this.who !== who) {
      this.who = who;
      this.text = `${this.key} ${this.who}`.toLowerCase();
    }
    return this;
  }

  /** Return the seconds that are left of the lease. */
  left(now) {
    return Math.max(0, (this.end - now) / 1000);
  }

  /** Tell whether the lease should have been renewed by now. */
  isLate(now) {
    return this.left(now) < Math.min(LATE, this.span / 4);
  }

  age(now) {
    return (now - this.since) / 1000;
  }

  /** Return the word for how it stands. */
  get state() {
    const { state, holds, holder } = this.view;
    if (state !== "held") return state;
    return holds === 0 ? "shut" : holder.claimed ? "held" : "handed";
  }
}

/** What a set of locks is made of. */
export const LOCKS = { path: "/v1/locks", items: "locks", states: STATES, Row };

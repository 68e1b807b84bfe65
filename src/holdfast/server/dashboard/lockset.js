// The locks that are shown: loaded page by page, swapped in at once, with the end of each lease on our own stop-watch.

import { get, query } from "./api.js";
import { clean, typeOf } from "./format.js";

const PAGE = 500;
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
    if (this.who !== `${owner} ${host}:${pid}`) {
      this.who = `${owner} ${host}:${pid}`;
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

/** The rows of one question to the server. */
export class LockSet {
  rows = []; // in the order of keys
  more = false; // there are, and were not asked for
  cameAt = 0;
  #byKey = new Map();
  #question = "";
  #abort = null;

  /** Load what matches; `early` is called when the first page of a new question is there. */
  async load({ show, prefix, owner, type }, most, early) {
    const question = JSON.stringify([show, prefix, owner, type]);
    const isNew = question !== this.#question;
    this.#abort?.abort();
    const { signal } = (this.#abort = new AbortController());
    const found = [];
    let more = false;
    let isEarly = isNew;
    for (const state of STATES[show]) {
      for (let after = ""; after !== null;) {
        if (found.length >= most) {
          more = true;
          break;
        }
        const page = await get(`/v1/locks${query({ prefix, owner, type, state, after, limit: PAGE })}`, signal);
        for (const view of page.locks) found.push([view, page.cameAt]);
        after = page.after;
        if (isEarly && after !== null) {
          isEarly = false;
          this.#swap(found, false);
          this.more = true;
          early();
        }
      }
    }
    this.#swap(found, !isNew);
    this.#question = question;
    this.more = more;
  }

  #swap(found, isNews) {
    const byKey = new Map();
    for (const [view, cameAt] of found) {
      const row = this.#byKey.get(view.key) ?? new Row(view.key);
      byKey.set(view.key, row.take(view, cameAt, isNews));
    }
    this.#byKey = byKey;
    this.rows = [...byKey.values()];
    if (found.length) this.rows.sort((a, b) => (a.key < b.key ? -1 : 1));
    this.cameAt = found.length ? found.at(-1)[1] : performance.now();
  }

  /** Forget everything: somebody else looks now. */
  clear() {
    this.#abort?.abort();
    this.#byKey = new Map();
    this.#question = "";
    this.rows = [];
    this.more = false;
  }
}

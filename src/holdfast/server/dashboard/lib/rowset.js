// The rows of one question to the server: loaded page by page, swapped in at once, kept through refreshes.

import { get, query } from "./api.js";
import { on } from "./state.js";

const PAGE = 500;

/** `states` says which lists make up what is shown; `Row` has a `key` and takes what the server says of it. */
export class RowSet {
  rows = []; // in the order of keys
  more = false; // there are, and were not asked for
  cameAt = 0;
  #byKey = new Map();
  #question = "";
  #abort = null;

  constructor({ path, items, states, Row }) {
    Object.assign(this, { path, items, states, Row });
    on("signed-out", () => this.#clear());
  }

  /** Load what matches; `early` is called when the first page of a new question is there. */
  async load({ show, ...narrow }, most, early = () => {}) {
    const question = JSON.stringify([show, narrow]);
    const isNew = question !== this.#question;
    this.#abort?.abort();
    const { signal } = (this.#abort = new AbortController());
    const found = [];
    let more = false;
    let isEarly = isNew;
    for (const state of this.states[show]) {
      for (let after = ""; after !== null;) {
        if (found.length >= most) {
          more = true;
          break;
        }
        const page = await get(`${this.path}${query({ ...narrow, state, after, limit: PAGE })}`, signal);
        for (const view of page[this.items]) found.push([view, page.cameAt]);
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
      const row = this.#byKey.get(view.key) ?? new this.Row(view.key);
      byKey.set(view.key, row.take(view, cameAt, isNews));
    }
    this.#byKey = byKey;
    this.rows = [...byKey.values()];
    if (found.length) this.rows.sort((a, b) => (a.key < b.key ? -1 : 1));
    this.cameAt = found.length ? found.at(-1)[1] : performance.now();
  }

  /** Forget everything: somebody else looks now. */
  #clear() {
    this.#abort?.abort();
    this.#byKey = new Map();
    this.#question = "";
    this.rows = [];
    this.more = false;
  }
}

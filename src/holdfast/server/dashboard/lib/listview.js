// A view that is a list: controls, columns to sort by, rows that are asked for again and again, and what is said below.

import { h, mark, put, refill, say } from "./dom.js";
import { clean, duration, number } from "./format.js";
import { Refresher } from "./refresh.js";
import { isOnline, may, on } from "./state.js";
import { VirtualList } from "./virtual.js";

const AT_FIRST = 5000; // rows; more when asked for
const STEP = 5000;

/** A view needs:
 *
 * - `title`, `name` (the class of its table), `columns`, `hints` (keys and what they do)
 * - `rows`, a RowSet; `filters(changed)` makes the controls; `above` are elements between them and the table
 * - `make`, `bind`, `tick` of a row, `link(key)` to its page, `act(key)` for its button
 * - `load(rows)`, what else is loaded before the rows; `chosen(values)`, `drawn()`, `ticked(now)`, what else to do
 * - `total(count)` and `more`, what is said of how many there are
 * - `nothing(show, problem)` and `noMatch`, what is said where there are none
 * - `key(key, selected)`, which does what a key is for, and tells whether it did */
export class ListView {
  #scrolled = 0;
  #most = AT_FIRST;

  constructor(how) {
    Object.assign(this, { above: [], chosen() {}, drawn() {}, ticked() {}, load: (rows) => rows(), ...how });
    this.filters = how.filters((asksAnew) => {
      this.chosen(this.filters.values);
      this.draw();
      this.list.grid.scrollTop = 0;
      if (asksAnew) {
        this.#most = AT_FIRST;
        this.refresher.now();
      }
    });
    this.list = new VirtualList({
      ...how,
      sortBy: (sort) => this.filters.set({ sort: this.filters.values.sort === sort ? `-${sort}` : sort }),
      keyOf: (row) => row.key,
      open: (row) => (location.hash = how.link(row.key)),
    });
    this.#build();
    this.list.body.addEventListener("click", ({ target }) => {
      if (target.dataset.act) how.act(target.closest("[role=row]").dataset.key);
    });
    const draw = () => this.draw();
    const load = () => this.load(() => this.rows.load(this.filters.question, this.#most, draw));
    this.refresher = new Refresher(load, draw);
    this.#listen();
  }

  #build() {
    this.told = h("span", { role: "status" });
    const more = () => ((this.#most += STEP), this.refresher.now());
    this.rest = h("button", { class: "quiet", hidden: true, click: more }, `Load ${number(STEP)} more`);
    const hint = ([key, what]) => h("span", {}, h("kbd", {}, key), ` ${what}`);
    const hints = h("span", { class: "hints" }, Object.entries(this.hints).map(hint));
    const foot = h("footer", { class: "foot" }, this.told, this.rest, hints);
    const parts = [this.filters.element, ...this.above, this.list.grid, foot];
    this.element = h("section", { class: "view", "aria-label": this.title }, ...parts);
  }

  #listen() {
    on("tick", (now) => {
      if (!this.isShown) return;
      this.list.each((slot, row) => this.tick(slot, row, now));
      this.ticked(now);
      if (!isOnline()) this.#tell();
    });
    on("event", () => this.isShown && this.refresher.kick());
    on("change", () => this.isShown && this.list.draw());
    on("signed-out", () => (this.refresher.isLoaded = false));
  }

  get isShown() {
    return this.element.isConnected;
  }

  draw() {
    if (!this.isShown) return;
    const { filters, list, refresher } = this;
    list.set(filters.apply(this.rows.rows, performance.now()));
    const isReversed = filters.values.sort.startsWith("-");
    const by = filters.values.sort.slice(isReversed ? 1 : 0);
    for (const [index, { sort, falls = false }] of this.columns.entries()) {
      mark(list.heads[index], "aria-sort", sort !== by ? null : falls === isReversed ? "ascending" : "descending");
    }
    mark(this.rest, "hidden", !this.rows.more || !refresher.isLoaded);
    this.drawn();
    this.#tell();
    mark(list.empty, "hidden", list.items.length > 0 || (!refresher.isLoaded && !refresher.problem));
    if (!list.items.length) refill(list.empty, ...this.#nothing());
  }

  #tell() {
    const { isLoaded, problem } = this.refresher;
    const [shown, all] = [this.list.items.length, this.rows.rows.length];
    const total = `${this.rows.more ? "the first " : ""}${this.total(all)}`;
    const text = shown < all ? `${number(shown)} of ${total}` : total;
    const some = this.rows.more ? `. ${this.more}` : "";
    const age = duration((performance.now() - this.rows.cameAt) / 1000);
    const old = isOnline() || !isLoaded ? "" : `, as of ${age} ago`;
    if (problem && all) return put(this.told, `Not up to date: ${clean(problem)}`);
    if (!may("observe")) return put(this.told, "");
    put(this.told, isLoaded ? `${text[0].toUpperCase()}${text.slice(1)}${some}${old}` : "Loading…");
  }

  #nothing() {
    const { filters, refresher } = this;
    const { problem } = refresher;
    if (may("observe") && !problem && filters.isNarrow) {
      const clear = h("button", { click: () => filters.reset() }, "Clear filters");
      return say("Nothing matches", this.noMatch, clear);
    }
    return this.nothing(filters.values.show, problem && clean(problem));
  }

  get address() {
    return this.filters.address;
  }

  show(parameters) {
    const before = this.filters.address;
    this.filters.read(parameters);
    this.chosen(this.filters.values);
    this.draw();
    this.list.grid.scrollTop = this.filters.address === before ? this.#scrolled : 0;
    this.refresher.start();
  }

  hide() {
    this.#scrolled = this.list.grid.scrollTop;
    this.refresher.stop();
  }

  search() {
    return this.filters.search;
  }

  pressed(key) {
    if (this.key(key, this.list.selected)) return true;
    if (key !== "Escape" || !this.filters.isNarrow) return this.list.pressed(key);
    this.filters.reset();
    return true;
  }
}

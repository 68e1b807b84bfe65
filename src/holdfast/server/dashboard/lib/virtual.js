// A list of any length with only the visible rows in the page. Rows keep their element as long as they are visible, so
// nothing flickers when others come and go. It is one stop for the Tab key; inside, j, k and the arrows move.

import { h, mark } from "./dom.js";

const SPARE = 6; // rows drawn beyond each edge
let lists = 0;

/** Return a cell of a row. */
export const cell = (name, ...children) => h("div", { class: `cell ${name}`, role: "gridcell" }, ...children);

/** `make()` returns a slot with an `element`; `bind(slot, item)` shows an item in it. Slots are used again. A click on
 * the head of a column with a `sort` calls `sortBy` with it. */
export class VirtualList {
  items = [];
  index = -1; // of the selected row
  key = null; // of the selected row
  rowHeight = 34;
  body = h("div", { class: "rows", role: "rowgroup" });
  empty = h("div", { class: "empty", hidden: true });
  #slots = new Map(); // key -> slot
  #spare = [];
  #frame = 0;
  #made = 0;
  #id = `list${++lists}`;

  constructor({ title, name, columns, sortBy, make, bind, keyOf, open }) {
    Object.assign(this, { make, bind, keyOf, open });
    this.heads = columns.map(({ name, title, sort }) => {
      const text = sort ? h("button", { click: () => sortBy(sort) }, title) : title;
      return h("div", { class: `cell ${name}`, role: "columnheader" }, text);
    });
    const head = h("div", { class: "head", role: "row" }, this.heads);
    const about = { class: `table ${name}`, role: "grid", tabindex: 0, "aria-label": title };
    this.grid = h("div", about, head, this.body, this.empty);
    this.grid.addEventListener("scroll", () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.measure()).observe(this.grid);
    this.grid.addEventListener("focus", () => this.index < 0 && this.select(this.#firstVisible()));
    this.body.addEventListener("click", (event) => this.#click(event));
  }

  measure() {
    this.rowHeight = parseFloat(getComputedStyle(this.grid).getPropertyValue("--row")) || 34;
    this.#size();
    this.draw();
  }

  #size() {
    this.body.style.height = `${this.items.length * this.rowHeight}px`;
    mark(this.grid, "aria-rowcount", this.items.length + 1);
  }

  /** Show these instead. The selected row stays selected; if it is gone, the one in its place is. */
  set(items, { grownBy = 0 } = {}) {
    const { scrollTop } = this.grid;
    this.items = items;
    if (this.key !== null) {
      const found = items.findIndex((item) => this.keyOf(item) === this.key);
      this.index = found >= 0 ? found : Math.min(this.index, items.length - 1);
      this.key = this.index >= 0 ? this.keyOf(items[this.index]) : null;
    }
    this.#size();
    // What grows at its top must not push away what is being read.
    if (grownBy && scrollTop > 0) this.grid.scrollTop = scrollTop + grownBy * this.rowHeight;
    this.draw();
  }

  #soon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.draw(false);
    });
  }

  /** Draw what is visible. When it was only scrolled, rows that stay are as they were. */
  draw(hasChanged = true) {
    const { rowHeight, items } = this;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / rowHeight) - SPARE);
    const last = Math.min(items.length, Math.ceil((this.grid.scrollTop + this.grid.clientHeight) / rowHeight) + SPARE);
    const before = this.#slots;
    this.#slots = new Map();
    const missing = [];
    for (let index = first; index < last; index++) {
      const key = this.keyOf(items[index]);
      const slot = before.get(key);
      if (slot) {
        before.delete(key);
        if (hasChanged) this.#place(slot, key, index);
        else this.#slots.set(key, slot);
      } else missing.push([key, index]);
    }
    this.#spare.push(...before.values());
    for (const [key, index] of missing) this.#place(this.#spare.pop() ?? this.#new(), key, index);
    for (const slot of this.#spare) mark(slot.element, "hidden", true);
    // Who reads the page without seeing it reads it in this order.
    let next = null;
    for (let index = last - 1; index >= first; index--) {
      const { element } = this.#slots.get(this.keyOf(items[index]));
      if (element.nextElementSibling !== next) this.body.insertBefore(element, next);
      next = element;
    }
    mark(this.grid, "aria-activedescendant", this.#slots.get(this.key)?.element.id);
  }

  #new() {
    const slot = this.make();
    slot.element.id = `${this.#id}-${++this.#made}`;
    this.body.append(slot.element);
    return slot;
  }

  #place(slot, key, index) {
    const { element } = slot;
    this.#slots.set(key, slot);
    slot.item = this.items[index];
    slot.index = index;
    const top = `translateY(${index * this.rowHeight}px)`;
    if (element.style.transform !== top) element.style.transform = top;
    mark(element, "hidden", false);
    mark(element, "aria-rowindex", index + 2);
    mark(element, "aria-selected", index === this.index);
    this.bind(slot, slot.item);
  }

  /** Call something for each row that is in the page. */
  each(call) {
    for (const slot of this.#slots.values()) call(slot, slot.item);
  }

  get selected() {
    return this.items[this.index];
  }

  #firstVisible() {
    return Math.min(this.items.length - 1, Math.ceil(this.grid.scrollTop / this.rowHeight));
  }

  select(index) {
    if (!this.items.length) return;
    this.index = Math.max(0, Math.min(this.items.length - 1, index));
    this.key = this.keyOf(this.items[this.index]);
    const top = this.index * this.rowHeight;
    const room = this.grid.clientHeight - this.body.offsetTop;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    else if (top + this.rowHeight > this.grid.scrollTop + room) this.grid.scrollTop = top + this.rowHeight - room;
    this.draw();
  }

  /** Handle a key; true if it was for us. */
  pressed(key) {
    const page = Math.max(1, Math.floor(this.grid.clientHeight / this.rowHeight) - 2);
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 }[key];
    if (step !== undefined) this.select(this.index < 0 ? this.#firstVisible() : this.index + step);
    else if (key === "Enter" && this.selected) this.open(this.selected);
    else return false;
    return true;
  }

  #click(event) {
    const element = event.target.closest("[role=row]");
    if (!element || event.target.closest("a, button") || getSelection().toString()) return;
    const slot = [...this.#slots.values()].find((each) => each.element === element);
    this.select(slot.index);
    this.open(slot.item);
  }
}

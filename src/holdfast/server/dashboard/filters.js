// What of the locks is shown: tabs, search, type, owner and prefix. All of it is in the address, so it can be kept and
// sent. Search looks through what is loaded; type, owner and prefix are asked of the server.

import { debounced, h, keyed, mark, put } from "./dom.js";
import { fleet } from "./fleet.js";
import { number } from "./format.js";

export const TABS = [
  { name: "use", title: "In use", set: "use", test: () => true },
  { name: "contended", title: "Contended", set: "use", test: (row) => row.view.waiting > 0 },
  { name: "operations", title: "Operations", set: "use", test: (row) => row.view.operation },
  { name: "expired", title: "Expired", set: "use", test: (row) => row.view.state === "expired" },
  { name: "free", title: "Free", set: "free", test: () => true },
  { name: "all", title: "All", set: "all", test: () => true },
];
const EMPTY = { show: "use", q: "", type: "", owner: "", prefix: "", sort: "key" };
const MOST_OPTIONS = 300;

/** The controls above the list. `changed(asksAnew)` is called when they say something else. */
export class Filters {
  values = { ...EMPTY };
  #seen = { type: new Set(), owner: new Set() };

  constructor(changed) {
    this.changed = changed;
    const typed = debounced(() => this.set({ prefix: this.prefix.value }), 250);
    this.search = h("input", {
      type: "search",
      id: "search",
      placeholder: "Search keys, owners, hosts",
      "aria-label": "Search keys, owners and hosts",
      autocomplete: "off",
      spellcheck: "false",
      "aria-keyshortcuts": "/",
      input: () => this.set({ q: this.search.value }),
    });
    this.type = h(
      "select",
      { "aria-label": "Type", change: () => this.set({ type: this.type.value }) },
      h("option", { value: "" }, "Any type"),
    );
    this.owner = h(
      "select",
      { "aria-label": "Owner", change: () => this.set({ owner: this.owner.value }) },
      h("option", { value: "" }, "Any owner"),
    );
    this.prefix = h("input", {
      type: "text",
      class: "prefix",
      placeholder: "Prefix",
      "aria-label": "Only keys that begin with",
      autocomplete: "off",
      spellcheck: "false",
      input: typed,
      change: () => typed.now(),
    });
    this.clear = h("button", { class: "quiet", hidden: true, click: () => this.reset() }, "Clear filters");
    this.tabs = h(
      "div",
      { class: "tabs", role: "group", "aria-label": "Which locks" },
      TABS.map((tab) =>
        h(
          "button",
          { "data-tab": tab.name, click: () => this.set({ show: tab.name }) },
          tab.title,
          h("span", { class: "count" }),
        ),
      ),
    );
    const box = h("label", { class: "search" }, this.search, h("kbd", { "aria-hidden": "true" }, "/"));
    this.element = h(
      "div",
      { class: "toolbar" },
      box,
      this.tabs,
      h("div", { class: "narrow" }, this.type, this.owner, this.prefix, this.clear),
    );
    this.#show();
  }

  get tab() {
    return TABS.find((tab) => tab.name === this.values.show);
  }

  /** Return what is to be asked of the server. */
  get question() {
    const { prefix, owner, type } = this.values;
    return { show: this.tab.set, prefix, owner, type };
  }

  get isNarrow() {
    const { q, type, owner, prefix } = this.values;
    return Boolean(q || type || owner || prefix);
  }

  set(values) {
    const before = JSON.stringify(this.question);
    Object.assign(this.values, values);
    this.#show();
    history.replaceState(null, "", this.address);
    this.changed(JSON.stringify(this.question) !== before);
  }

  reset() {
    this.set({ ...EMPTY, show: this.values.show, sort: this.values.sort });
  }

  /** Return the address of this choice. */
  get address() {
    const unusual = Object.entries(this.values).filter(([name, value]) => value !== EMPTY[name]);
    return unusual.length ? `#/locks?${new URLSearchParams(unusual)}` : "#/locks";
  }

  /** Take the choice from an address. */
  read(parameters) {
    const given = Object.fromEntries(Object.keys(EMPTY).map((name) => [name, parameters.get(name) ?? EMPTY[name]]));
    if (!TABS.some((tab) => tab.name === given.show)) given.show = EMPTY.show;
    this.values = given;
    this.#show();
  }

  #show() {
    const { values } = this;
    for (const name of ["type", "owner"]) {
      if (values[name]) this.#offer(name, [values[name]]);
      this[name].value = values[name];
    }
    if (this.search.value !== values.q) this.search.value = values.q;
    if (document.activeElement !== this.prefix) this.prefix.value = values.prefix;
    for (const button of this.tabs.children) mark(button, "aria-pressed", String(button.dataset.tab === values.show));
    mark(this.clear, "hidden", !this.isNarrow);
  }

  #offer(name, texts) {
    const seen = this.#seen[name];
    const before = seen.size;
    for (const text of texts) if (text && seen.size < MOST_OPTIONS) seen.add(text);
    if (seen.size === before) return;
    const sorted = ["", ...[...seen].sort(new Intl.Collator(undefined, { numeric: true }).compare)];
    const chosen = this[name].value;
    keyed(
      this[name],
      sorted,
      (text) => text,
      (text) => h("option", { value: text }, text ? fleet.nameOf(text) : `Any ${name}`),
      () => {},
    );
    this[name].value = chosen;
  }

  /** Return the rows to show, in their order, and count what each tab would show. */
  apply(rows, now) {
    this.#offer(
      "type",
      rows.map((row) => row.type),
    );
    this.#offer(
      "owner",
      rows.map((row) => row.view.holder?.owner),
    );
    const words = this.values.q.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? rows.filter((row) => words.every((word) => row.text.includes(word))) : rows;
    for (const [index, tab] of TABS.entries()) {
      const known = tab.set === this.tab.set;
      put(
        this.tabs.children[index].lastChild,
        known ? number(tab.set === tab.name ? found.length : found.filter(tab.test).length) : "",
      );
    }
    return sorted(this.tab.name === this.tab.set ? found : found.filter(this.tab.test), this.values.sort, now);
  }
}

const ORDERS = {
  age: (now) => (a, b) => (b.view.holder ? b.age(now) : -1) - (a.view.holder ? a.age(now) : -1),
  left: (now) => (a, b) => (a.view.holder ? a.left(now) : Infinity) - (b.view.holder ? b.left(now) : Infinity),
  queue: () => (a, b) => b.view.waiting - a.view.waiting,
};

function sorted(rows, sort, now) {
  const [name, isReversed] = sort.startsWith("-") ? [sort.slice(1), true] : [sort, false];
  // Equal rows keep the order of their keys, so nothing dances.
  if (Object.hasOwn(ORDERS, name)) {
    const order = ORDERS[name](now);
    return [...rows].sort((a, b) => (isReversed ? order(b, a) : order(a, b)) || 0);
  }
  return isReversed ? [...rows].reverse() : rows;
}

// What of the work is shown: tabs, search, type, instance and prefix. All of it is in the address. Search looks through
// what is loaded; type, instance and prefix are asked of the server.

import { debounced, h, keyed, mark, put } from "./dom.js";
import { clean, number } from "./format.js";
import { fleet } from "./fleet.js";

const TABS = [
  { name: "open", title: "Open", set: "open", test: () => true },
  { name: "offered", title: "Offered", set: "open", test: (row) => row.view.state === "offered" },
  { name: "assigned", title: "Assigned", set: "open", test: (row) => row.view.state === "assigned" },
  { name: "failed", title: "Failed", set: "open", test: (row) => row.view.state === "failed" },
  { name: "completed", title: "Completed", set: "completed", test: () => true },
  { name: "all", title: "All", set: "all", test: () => true },
];
const EMPTY = { show: "open", q: "", type: null, instance: "", prefix: "", sort: "key" };
const MOST_OPTIONS = 300;

/** The controls above the list. `changed(asksAnew)` is called when they say something else. */
export class WorkFilters {
  values = { ...EMPTY };

  constructor(changed, ...more) {
    this.changed = changed;
    const typed = debounced(() => this.set({ prefix: this.prefix.value }), 250);
    this.search = h("input", {
      type: "search",
      placeholder: "Search keys, instances, errors",
      "aria-label": "Search keys, instances and errors",
      autocomplete: "off",
      spellcheck: "false",
      "aria-keyshortcuts": "/",
      input: () => this.set({ q: this.search.value }),
    });
    this.instance = h(
      "select",
      { "aria-label": "Instance", change: () => this.set({ instance: this.instance.value }) },
      h("option", { value: "" }, "Any instance"),
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
    const tab = ({ name, title }) =>
      h("button", { "data-tab": name, click: () => this.set({ show: name }) }, title, h("span", { class: "count" }));
    this.tabs = h("div", { class: "tabs", role: "group", "aria-label": "Which work" }, TABS.map(tab));
    const box = h("label", { class: "search" }, this.search, h("kbd", { "aria-hidden": "true" }, "/"));
    const narrow = h("div", { class: "narrow" }, this.clear, this.instance, this.prefix, ...more);
    this.element = h("div", { class: "toolbar" }, box, this.tabs, narrow);
    this.#show();
  }

  get tab() {
    return TABS.find((tab) => tab.name === this.values.show);
  }

  /** Return what is to be asked of the server. A type is a prefix, unless it is that of keys without a colon. */
  get question() {
    const { prefix, instance, type } = this.values;
    const typed = type ? `${type}:` : "";
    return { show: this.tab.set, prefix: prefix.startsWith(typed) ? prefix : typed, instance };
  }

  get isNarrow() {
    const { q, type, instance, prefix } = this.values;
    return Boolean(q || type !== null || instance || prefix);
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
    return unusual.length ? `#/work?${new URLSearchParams(unusual)}` : "#/work";
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
    this.offer();
    if (this.search.value !== values.q) this.search.value = values.q;
    if (document.activeElement !== this.prefix) this.prefix.value = values.prefix;
    for (const button of this.tabs.children) mark(button, "aria-pressed", String(button.dataset.tab === values.show));
    mark(this.clear, "hidden", !this.isNarrow);
  }

  /** Let one choose among the instances that are known. */
  offer() {
    const chosen = this.values.instance;
    const ids = fleet.members.slice(0, MOST_OPTIONS).map(({ view }) => view.id);
    if (chosen && !ids.includes(chosen)) ids.push(chosen);
    const text = (id) => {
      const gone = fleet.byId.get(id)?.isGone ? ` (${fleet.byId.get(id).view.state})` : "";
      return id ? `${fleet.nameOf(id)}${gone}` : "Any instance";
    };
    keyed(
      this.instance,
      ["", ...ids],
      (id) => id,
      (id) => h("option", { value: id }),
      (option, id) => put(option, clean(text(id))),
    );
    if (this.instance.value !== chosen) this.instance.value = chosen;
  }

  /** Return the rows to show, in their order, and count what each tab would show. */
  apply(rows) {
    const { q, type, sort } = this.values;
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter(
      (row) => (type === null || row.type === type) && words.every((word) => row.text.includes(word)),
    );
    for (const [index, tab] of TABS.entries()) {
      const known = tab.set === this.tab.set;
      put(this.tabs.children[index].lastChild, known ? number(found.filter(tab.test).length) : "");
    }
    return sorted(found.filter(this.tab.test), sort);
  }
}

const ORDERS = {
  age: (a, b) => b.age() - a.age(),
  tries: (a, b) => b.view.tries - a.view.tries,
};

function sorted(rows, sort) {
  const [name, isReversed] = sort.startsWith("-") ? [sort.slice(1), true] : [sort, false];
  if (!Object.hasOwn(ORDERS, name)) return isReversed ? [...rows].reverse() : rows;
  const order = ORDERS[name]; // equal rows keep the order of their keys, so nothing dances
  return [...rows].sort((a, b) => (isReversed ? order(b, a) : order(a, b)) || 0);
}

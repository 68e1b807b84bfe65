// What of a list is shown: tabs, search, prefix, and what else a view narrows it down by. All of it is in the address,
// so it can be kept and sent. Search looks through what is loaded; the rest is asked of the server.

import { debounced, h, keyed, mark, put, searchBox } from "./dom.js";
import { number } from "./format.js";

/** The controls above a list. `changed(asksAnew)` is called when they say something else.
 *
 * `tabs` say which `set` of rows they are of, and which of these they show; `empty` has all values as they are when
 * nothing is chosen; `orders` compare rows. A class of its own adds `question` and `offer`, and narrows it down. */
export class Filters {
  constructor({ path, tabs, empty, orders = {}, label, search, searchLabel, changed }) {
    Object.assign(this, { path, all: tabs, empty, orders, changed, values: { ...empty } });
    const typed = debounced(() => this.set({ prefix: this.prefix.value }), 250);
    const only = { placeholder: "Prefix", "aria-label": "Only keys that begin with" };
    const plain = { autocomplete: "off", spellcheck: "false" };
    const listeners = { input: typed, change: () => typed.now() };
    this.prefix = h("input", { type: "text", class: "prefix", ...only, ...plain, ...listeners });
    this.clear = h("button", { class: "quiet", hidden: true, click: () => this.reset() }, "Clear filters");
    const tab = ({ name, title }) =>
      h("button", { "data-tab": name, click: () => this.set({ show: name }) }, title, h("span", { class: "count" }));
    this.tabs = h("div", { class: "tabs", role: "group", "aria-label": label }, tabs.map(tab));
    const [field, box] = searchBox(search, searchLabel, () => this.set({ q: this.search.value }));
    this.search = field;
    this.element = h("div", { class: "toolbar" }, box, this.tabs);
  }

  /** Add controls that narrow the list down. */
  narrow(...controls) {
    this.element.append(h("div", { class: "narrow" }, ...controls));
    this.show();
  }

  /** Return a control that chooses one of many by its `name` in the values. */
  choice(name, title) {
    const select = h("select", { "aria-label": title, change: () => this.set({ [name]: select.value }) });
    this[name] = select;
    this.fillChoice(name, []);
    return select;
  }

  /** Let one choose among these; what is chosen stays so. */
  fillChoice(name, choices, textOf) {
    const make = (value) => h("option", { value });
    const update = (option, value) => put(option, value ? textOf(value) : `Any ${name}`);
    keyed(this[name], ["", ...choices], (value) => value, make, update);
    if (this[name].value !== this.values[name]) this[name].value = this.values[name];
  }

  offer() {}

  get tab() {
    return this.all.find((tab) => tab.name === this.values.show);
  }

  get isNarrow() {
    const { show, sort, ...rest } = this.values;
    return Object.entries(rest).some(([name, value]) => value !== this.empty[name]);
  }

  set(values) {
    const before = JSON.stringify(this.question);
    Object.assign(this.values, values);
    this.show();
    history.replaceState(null, "", this.address);
    this.changed(JSON.stringify(this.question) !== before);
  }

  reset() {
    this.set({ ...this.empty, show: this.values.show, sort: this.values.sort });
  }

  /** Return the address of this choice. */
  get address() {
    const unusual = Object.entries(this.values).filter(([name, value]) => value !== this.empty[name]);
    return unusual.length ? `${this.path}?${new URLSearchParams(unusual)}` : this.path;
  }

  /** Take the choice from an address. */
  read(parameters) {
    const { empty } = this;
    const given = Object.fromEntries(Object.keys(empty).map((name) => [name, parameters.get(name) ?? empty[name]]));
    if (!this.all.some((tab) => tab.name === given.show)) given.show = empty.show;
    this.values = given;
    this.show();
  }

  show() {
    const { values } = this;
    this.offer();
    if (this.search.value !== values.q) this.search.value = values.q;
    if (document.activeElement !== this.prefix) this.prefix.value = values.prefix ?? "";
    for (const button of this.tabs.children) mark(button, "aria-pressed", String(button.dataset.tab === values.show));
    mark(this.clear, "hidden", !this.isNarrow);
  }

  /** Return the rows to show, in their order, and count what each tab would show. */
  apply(rows, now) {
    const words = this.values.q.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? rows.filter((row) => words.every((word) => row.text.includes(word))) : rows;
    const of = (tab) => (tab.test ? found.filter(tab.test) : found);
    for (const [index, tab] of this.all.entries()) {
      put(this.tabs.children[index].lastChild, tab.set === this.tab.set ? number(of(tab).length) : "");
    }
    return this.#sorted(of(this.tab), now);
  }

  #sorted(rows, now) {
    const { sort = "" } = this.values;
    const [name, isReversed] = sort.startsWith("-") ? [sort.slice(1), true] : [sort, false];
    if (!Object.hasOwn(this.orders, name)) return isReversed ? [...rows].reverse() : rows;
    const order = this.orders[name](now); // equal rows keep the order of their keys, so nothing dances
    return [...rows].sort((a, b) => (isReversed ? order(b, a) : order(a, b)) || 0);
  }
}

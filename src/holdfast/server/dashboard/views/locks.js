// The locks, now: who holds what, for how long yet, and how many wait.

import { h, say } from "../lib/dom.js";
import { Filters } from "../lib/filters.js";
import { fleet } from "../lib/fleet.js";
import { count, lockLink } from "../lib/format.js";
import { ListView } from "../lib/listview.js";
import { RowSet } from "../lib/rowset.js";
import { may, on, state } from "../lib/state.js";
import { breakDialog } from "./lockdialogs.js";
import { bindRow, COLUMNS, makeRow, tickRow } from "./lockrow.js";
import { LOCKS } from "./lockset.js";

const TABS = [
  { name: "use", title: "In use", set: "use" },
  { name: "contended", title: "Contended", set: "use", test: (row) => row.view.waiting > 0 },
  { name: "operations", title: "Operations", set: "use", test: (row) => row.view.operation },
  { name: "expired", title: "Expired", set: "use", test: (row) => row.view.state === "expired" },
  { name: "free", title: "Free", set: "free" },
  { name: "all", title: "All", set: "all" },
];
const ORDERS = {
  age: (now) => (a, b) => (b.view.holder ? b.age(now) : -1) - (a.view.holder ? a.age(now) : -1),
  left: (now) => (a, b) => (a.view.holder ? a.left(now) : Infinity) - (b.view.holder ? b.left(now) : Infinity),
  queue: () => (a, b) => b.view.waiting - a.view.waiting,
};
const MOST_OPTIONS = 300;
const inOrder = new Intl.Collator(undefined, { numeric: true }).compare;
const NOTHING = {
  use: ["Nothing is locked", "Locks appear here as soon as somebody takes one."],
  contended: ["Nobody waits", "Locks that somebody waits for appear here."],
  operations: ["No operation is running", "Operations appear here while somebody does them."],
  expired: [
    "Nothing has expired",
    "Leases whose holder stopped renewing appear here until somebody asks for the lock.",
  ],
};

/** The controls above the list: one can choose among the types and owners that were seen. */
class LockFilters extends Filters {
  #seen = { type: new Set(), owner: new Set() };

  constructor(changed) {
    super({
      path: "#/locks",
      tabs: TABS,
      empty: { show: "use", q: "", type: "", owner: "", prefix: "", sort: "key" },
      orders: ORDERS,
      label: "Which locks",
      search: "Search keys, owners, hosts",
      searchLabel: "Search keys, owners and hosts",
      changed,
    });
    this.search.id = "search";
    this.narrow(this.choice("type", "Type"), this.choice("owner", "Owner"), this.prefix, this.clear);
  }

  /** Return what is to be asked of the server. */
  get question() {
    const { prefix, owner, type } = this.values;
    return { show: this.tab.set, prefix, owner, type };
  }

  /** Let one choose what is chosen. */
  offer() {
    for (const name of ["type", "owner"]) {
      this.#see(name, [this.values[name]]);
      this[name].value = this.values[name];
    }
  }

  #see(name, texts) {
    const seen = this.#seen[name];
    const before = seen.size;
    for (const text of texts) if (text && seen.size < MOST_OPTIONS) seen.add(text);
    if (seen.size > before) this.fillChoice(name, [...seen].sort(inOrder), fleet.nameOf);
  }

  apply(rows, now) {
    this.#see("type", rows.map((row) => row.type));
    this.#see("owner", rows.map((row) => row.view.holder?.owner));
    return super.apply(rows, now);
  }
}

/** Return what is to be said where there is nothing to be seen. */
function nothing(show, problem) {
  if (!may("observe")) {
    const text = "This access token may not observe any lock. Whoever runs the server can give it rights, for example ";
    return say("No rights to look", [text, h("code", {}, "observe:*"), "."]);
  }
  if (problem) return say("The server did not list the locks", problem);
  const words = NOTHING[show] ?? ["No locks", "Keys that were used within the last hour appear here."];
  return say(...words, show === "use" && h("pre", {}, example()));
}

function example() {
  const who = state.server?.authentication ? ` -H "Authorization: Bearer $TOKEN"` : "";
  const headers = `-H "Content-Type: application/json"${who}`;
  return `curl ${location.origin}/v1/locks/hello/acquire \\\n  ${headers} -d '{"ttl": 60}'`;
}

export const locksView = new ListView({
  title: "Locks",
  name: "locks",
  columns: COLUMNS,
  hints: { "/": "search", "j k": "move", Enter: "open", b: "break", "?": "help" },
  rows: new RowSet(LOCKS),
  filters: (changed) => new LockFilters(changed),
  make: makeRow,
  bind: bindRow,
  tick: tickRow,
  link: lockLink,
  act: (key) => breakDialog(key),
  total: (all) => count(all, "lock"),
  more: "There are more: narrow them down by prefix, type or owner",
  noMatch: "No lock here is like that.",
  nothing,
  key(key, selected) {
    if (key !== "b" || !selected?.view.holder) return false;
    breakDialog(selected.key);
    return true;
  },
});
on("fleet", () => locksView.draw());

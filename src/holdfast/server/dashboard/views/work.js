// The work, now: what is to be done, who does it, what went wrong.

import { get } from "../lib/api.js";
import { h, mark, say } from "../lib/dom.js";
import { Filters } from "../lib/filters.js";
import { fleet } from "../lib/fleet.js";
import { count, workLink } from "../lib/format.js";
import { ListView } from "../lib/listview.js";
import { RowSet } from "../lib/rowset.js";
import { may, on } from "../lib/state.js";
import { breakDialog } from "./lockdialogs.js";
import { forgetDialog, offerAgainDialog, offerDialog } from "./workdialogs.js";
import { bindWorkRow, COLUMNS, makeWorkRow, tickWorkRow } from "./workrow.js";
import { WORKS } from "./workset.js";
import { typeStrip } from "./worktypes.js";

const TABS = [
  { name: "open", title: "Open", set: "open" },
  { name: "offered", title: "Offered", set: "open", test: (row) => row.view.state === "offered" },
  { name: "assigned", title: "Assigned", set: "open", test: (row) => row.view.state === "assigned" },
  { name: "failed", title: "Failed", set: "open", test: (row) => row.view.state === "failed" },
  { name: "completed", title: "Completed", set: "completed" },
  { name: "all", title: "All", set: "all" },
];
const ORDERS = { age: () => (a, b) => b.age() - a.age(), tries: () => (a, b) => b.view.tries - a.view.tries };
const MOST_OPTIONS = 300;

const offer = h("button", { click: () => offerDialog(), title: "Offer work (o)" }, "Offer…");
const types = typeStrip((type) => worksView.filters.set({ type }));

/** The controls above the list: one can choose among the instances that are known. */
class WorkFilters extends Filters {
  constructor(changed) {
    super({
      path: "#/work",
      tabs: TABS,
      empty: { show: "open", q: "", type: null, instance: "", prefix: "", sort: "key" },
      orders: ORDERS,
      label: "Which work",
      search: "Search keys, instances, errors",
      searchLabel: "Search keys, instances and errors",
      changed,
    });
    this.narrow(this.clear, this.choice("instance", "Instance"), this.prefix, offer);
  }

  /** Return what is to be asked of the server. A type is a prefix, unless it is that of keys without a colon. */
  get question() {
    const { prefix, instance, type } = this.values;
    const typed = type ? `${type}:` : "";
    return { show: this.tab.set, prefix: prefix.startsWith(typed) ? prefix : typed, instance };
  }

  offer() {
    const chosen = this.values.instance;
    const ids = fleet.members.slice(0, MOST_OPTIONS).map(({ view }) => view.id);
    if (chosen && !ids.includes(chosen)) ids.push(chosen);
    this.fillChoice("instance", ids, (id) => {
      const member = fleet.byId.get(id);
      return `${fleet.nameOf(id)}${member?.isGone ? ` (${member.view.state})` : ""}`;
    });
  }

  apply(rows, now) {
    const { type } = this.values;
    return super.apply(type === null ? rows : rows.filter((row) => row.type === type), now);
  }
}

/** Return what is to be said where there is nothing to be seen. */
function nothing(show, problem) {
  if (!may("observe")) return say("No rights to look", "This access token may not observe any work.");
  if (problem) return say("The server did not list the work", problem);
  const how = h("pre", {}, 'holdfast work offer report:2026-11 --data \'{"pages": 4}\'');
  return {
    open: say("Nothing is to be done", "Work that is offered, assigned or has failed appears here.", how),
    offered: say("Nothing is offered", "Work that no instance has claimed yet appears here."),
    assigned: say("Nothing is assigned", "Work that an instance is at appears here."),
    failed: say("Nothing has failed", "Work that has failed, and is not tried again, appears here."),
    completed: say("Nothing has completed", "Work that is done appears here for as long as history is kept."),
  }[show] ?? say("No work", "Nothing was ever offered, or long ago.", how);
}

export const worksView = new ListView({
  title: "Work",
  name: "works",
  columns: COLUMNS,
  hints: { "/": "search", "j k": "move", Enter: "open", o: "offer again", f: "forget", b: "break" },
  rows: new RowSet(WORKS),
  filters: (changed) => new WorkFilters(changed),
  above: [types.element],
  make: makeWorkRow,
  bind: bindWorkRow,
  tick: tickWorkRow,
  link: workLink,
  act: (key) => offerAgainDialog(key),
  async load(rows) {
    const counts = get("/v1/work-counts");
    await Promise.all([fleet.load(), counts]); // names first: the rows are searched by them
    const { items, cameAt } = await counts;
    this.filters.offer();
    types.show(items, cameAt);
    await rows();
  },
  chosen: ({ type }) => types.pick(type),
  drawn: () => mark(offer, "hidden", !may("acquire")),
  ticked: (now) => types.tick(now),
  total: (all) => `${count(all, "piece")} of work`,
  more: "There is more: narrow it down by type, prefix or instance",
  noMatch: "No work here is like that.",
  nothing,
  key(key, selected) {
    if (key === "o") selected?.isOver ? offerAgainDialog(selected.key) : offerDialog();
    else if (key === "f" && selected) forgetDialog(selected.key);
    else if (key === "b" && selected?.view.state === "assigned") breakDialog(selected.key, selected.view.token);
    else return false;
    return true;
  },
});
on("acted", () => worksView.refresher.now());
on("signed-out", () => types.show([], 0));

// The work, now: what is to be done, who does it, what went wrong.

import { get } from "./api.js";
import { breakDialog } from "./breaking.js";
import { h, mark, put, refill } from "./dom.js";
import { fleet } from "./fleet.js";
import { clean, count, duration, number, workLink } from "./format.js";
import { Refresher } from "./refresh.js";
import { isOnline, may, on } from "./state.js";
import { VirtualList } from "./virtual.js";
import { forgetDialog, offerAgainDialog, offerDialog } from "./workacts.js";
import { WorkFilters } from "./workfilters.js";
import { bindWorkRow, COLUMNS, makeWorkRow, tickWorkRow } from "./workrow.js";
import { WorkSet } from "./workset.js";
import { typeStrip } from "./worktypes.js";

const AT_FIRST = 5000; // pieces of work; more when asked for
const STEP = 5000;

const workSet = new WorkSet();
let most = AT_FIRST;
let problem = "";
let isLoaded = false;
let isShown = false;
let scrolled = 0;

const offer = h("button", { click: () => offerDialog(), title: "Offer work (o)" }, "Offer…");
const filters = new WorkFilters((asksAnew) => {
  types.pick(filters.values.type);
  draw();
  grid.scrollTop = 0;
  if (asksAnew) {
    most = AT_FIRST;
    refresher.now();
  }
}, offer);
const types = typeStrip((type) => filters.set({ type }));

const sortBy = (sort) => filters.set({ sort: filters.values.sort === sort ? `-${sort}` : sort });
const heads = COLUMNS.map(({ name, title, sort }) =>
  h(
    "div",
    { class: `cell ${name}`, role: "columnheader" },
    sort ? h("button", { click: () => sortBy(sort) }, title) : title,
  ),
);
const body = h("div", { class: "rows", role: "rowgroup" });
const empty = h("div", { class: "empty", hidden: true });
const grid = h(
  "div",
  { class: "table works", role: "grid", tabindex: 0, "aria-label": "Work" },
  h("div", { class: "head", role: "row" }, heads),
  body,
  empty,
);
const told = h("span", { role: "status" });
const more = h(
  "button",
  { class: "quiet", hidden: true, click: () => ((most += STEP), refresher.now()) },
  `Load ${number(STEP)} more`,
);
const hints = Object.entries({ "/": "search", "j k": "move", Enter: "open", o: "offer again", f: "forget", b: "break" });
const foot = h(
  "footer",
  { class: "foot" },
  told,
  more,
  h(
    "span",
    { class: "hints" },
    hints.map(([key, what]) => h("span", {}, h("kbd", {}, key), ` ${what}`)),
  ),
);

const list = new VirtualList(grid, body, {
  make: makeWorkRow,
  bind: bindWorkRow,
  keyOf: (row) => row.key,
  open: (row) => (location.hash = workLink(row.key)),
});

body.addEventListener("click", (event) => {
  if (event.target.dataset.act === "offer") offerAgainDialog(event.target.closest("[role=row]").dataset.key);
});

const refresher = new Refresher(
  async () => {
    const counts = get("/v1/work-counts");
    await Promise.all([fleet.load(), counts]); // names first: the rows are searched by them
    const { items, cameAt } = await counts;
    filters.offer();
    types.show(items, cameAt);
    await workSet.load(filters.question, most, draw);
    problem = "";
    isLoaded = true;
    draw();
  },
  (error) => {
    problem = error.message;
    draw();
  },
);

function draw() {
  if (!isShown) return;
  list.set(filters.apply(workSet.rows));
  const isReversed = filters.values.sort.startsWith("-");
  const by = filters.values.sort.slice(isReversed ? 1 : 0);
  for (const [index, { sort, falls = false }] of COLUMNS.entries()) {
    mark(heads[index], "aria-sort", sort !== by ? null : falls === isReversed ? "ascending" : "descending");
  }
  mark(more, "hidden", !workSet.more || !isLoaded);
  mark(offer, "hidden", !may("acquire"));
  tell();
  mark(empty, "hidden", list.items.length > 0 || (!isLoaded && !problem));
  if (!list.items.length) refill(empty, ...nothing());
}

function tell() {
  const [shown, all] = [list.items.length, workSet.rows.length];
  const first = workSet.more ? "the first " : "";
  const pieces = `${first}${count(all, "piece")} of work`;
  const text = shown < all ? `${number(shown)} of ${pieces}` : pieces;
  const some = workSet.more ? ". There is more: narrow it down by type, prefix or instance" : "";
  const old = isOnline() || !isLoaded ? "" : `, as of ${duration((performance.now() - workSet.cameAt) / 1000)} ago`;
  if (problem && all) return put(told, `Not up to date: ${clean(problem)}`);
  if (!may("observe")) return put(told, "");
  put(told, isLoaded ? `${text[0].toUpperCase()}${text.slice(1)}${some}${old}` : "Loading…");
}

/** Return what is to be said where there is nothing to be seen. */
function nothing() {
  const say = (title, text, ...rest) => [h("h2", {}, title), h("p", {}, text), ...rest];
  if (!may("observe")) return say("No rights to look", "This access token may not observe any work.");
  if (problem) return say("The server did not list the work", clean(problem));
  if (filters.isNarrow) {
    const clear = h("button", { click: () => filters.reset() }, "Clear filters");
    return say("Nothing matches", "No work here is like that.", clear);
  }
  const how = h("pre", {}, 'holdfast work offer report:2026-11 --data \'{"pages": 4}\'');
  return {
    open: say("Nothing is to be done", "Work that is offered, assigned or has failed appears here.", how),
    offered: say("Nothing is offered", "Work that no instance has claimed yet appears here."),
    assigned: say("Nothing is assigned", "Work that an instance is at appears here."),
    failed: say("Nothing has failed", "Work that has failed, and is not tried again, appears here."),
    completed: say("Nothing has completed", "Work that is done appears here for as long as history is kept."),
  }[filters.values.show] ?? say("No work", "Nothing was ever offered, or long ago.", how);
}

on("tick", (now) => {
  if (!isShown) return;
  list.each(tickWorkRow);
  types.tick(now);
  if (!isOnline()) tell();
});
on("event", () => isShown && refresher.kick());
on("acted", () => isShown && refresher.now());
on("change", () => isShown && list.draw());
on("signed-out", () => {
  workSet.clear();
  types.show([], 0);
  isLoaded = false;
});

export const worksView = {
  title: "Work",
  element: h("section", { class: "view", "aria-label": "Work" }, filters.element, types.element, grid, foot),
  get address() {
    return filters.address;
  },
  show(parameters) {
    const before = filters.address;
    filters.read(parameters);
    types.pick(filters.values.type);
    isShown = true;
    draw();
    grid.scrollTop = filters.address === before ? scrolled : 0;
    refresher.start();
  },
  hide() {
    scrolled = grid.scrollTop;
    isShown = false;
    refresher.stop();
  },
  search: () => filters.search,
  pressed(key) {
    const { selected } = list;
    if (key === "o") selected?.isOver ? offerAgainDialog(selected.key) : offerDialog();
    else if (key === "f" && selected) forgetDialog(selected.key);
    else if (key === "b" && selected?.view.state === "assigned") breakDialog(selected.key, selected.view.token);
    else if (key === "Escape" && filters.isNarrow) filters.reset();
    else return list.pressed(key);
    return true;
  },
};

// The locks, now: who holds what, for how long yet, and how many wait.

import { breakDialog } from "./breaking.js";
import { h, mark, put, refill } from "./dom.js";
import { Filters } from "./filters.js";
import { clean, count, duration, lockLink, number } from "./format.js";
import { bindRow, COLUMNS, makeRow, tickRow } from "./lockrow.js";
import { LockSet } from "./lockset.js";
import { Refresher } from "./refresh.js";
import { isOnline, may, on, state } from "./state.js";
import { VirtualList } from "./virtual.js";

const AT_FIRST = 5000; // locks; more when asked for
const STEP = 5000;

const lockSet = new LockSet();
let most = AT_FIRST;
let problem = "";
let isLoaded = false;
let isShown = false;
let scrolled = 0;

const filters = new Filters((asksAnew) => {
  draw();
  list.grid.scrollTop = 0;
  if (asksAnew) {
    most = AT_FIRST;
    refresher.now();
  }
});

const heads = COLUMNS.map(({ name, title, sort }) =>
  h(
    "div",
    { class: `cell ${name}`, role: "columnheader" },
    sort
      ? h("button", { click: () => filters.set({ sort: filters.values.sort === sort ? `-${sort}` : sort }) }, title)
      : title,
  ),
);
const body = h("div", { class: "rows", role: "rowgroup" });
const empty = h("div", { class: "empty", hidden: true });
const grid = h(
  "div",
  { class: "table locks", role: "grid", tabindex: 0, "aria-label": "Locks" },
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
const foot = h(
  "footer",
  { class: "foot" },
  told,
  more,
  h(
    "span",
    { class: "hints" },
    keyHint("/", "search"),
    keyHint("j k", "move"),
    keyHint("Enter", "open"),
    keyHint("b", "break"),
    keyHint("?", "help"),
  ),
);

function keyHint(key, what) {
  return h("span", {}, h("kbd", {}, key), ` ${what}`);
}

const list = new VirtualList(grid, body, {
  make: makeRow,
  bind: bindRow,
  keyOf: (row) => row.key,
  open: (row) => (location.hash = lockLink(row.key)),
});

body.addEventListener("click", (event) => {
  if (event.target.dataset.act === "break") breakDialog(event.target.closest("[role=row]").dataset.key);
});

const refresher = new Refresher(
  async () => {
    await lockSet.load(filters.question, most, draw);
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
  list.set(filters.apply(lockSet.rows, performance.now()));
  const isReversed = filters.values.sort.startsWith("-");
  const by = filters.values.sort.slice(isReversed ? 1 : 0);
  for (const [index, { sort, falls = false }] of COLUMNS.entries()) {
    mark(heads[index], "aria-sort", sort !== by ? null : falls === isReversed ? "ascending" : "descending");
  }
  mark(more, "hidden", !lockSet.more || !isLoaded);
  tell();
  mark(empty, "hidden", list.items.length > 0 || (!isLoaded && !problem));
  if (!list.items.length) refill(empty, ...nothing());
}

function tell() {
  const [shown, all] = [list.items.length, lockSet.rows.length];
  const first = lockSet.more ? "the first " : "";
  const text = shown < all ? `${number(shown)} of ${first}${count(all, "lock")}` : `${first}${count(all, "lock")}`;
  const some = lockSet.more ? ". There are more: narrow them down by prefix, type or owner" : "";
  const old = isOnline() || !isLoaded ? "" : `, as of ${duration((performance.now() - lockSet.cameAt) / 1000)} ago`;
  if (problem && all) return put(told, `Not up to date: ${clean(problem)}`);
  if (!may("observe")) return put(told, "");
  put(told, isLoaded ? `${text[0].toUpperCase()}${text.slice(1)}${some}${old}` : "Loading…");
}

/** Return what is to be said where there is nothing to be seen. */
function nothing() {
  if (!may("observe")) {
    return [
      h("h2", {}, "No rights to look"),
      h(
        "p",
        {},
        "This access token may not observe any lock. Whoever runs the server can give it rights, for example ",
        h("code", {}, "observe:*"),
        ".",
      ),
    ];
  }
  if (problem) return [h("h2", {}, "The server did not list the locks"), h("p", {}, clean(problem))];
  if (filters.isNarrow) {
    return [
      h("h2", {}, "Nothing matches"),
      h("p", {}, "No lock here is like that."),
      h("button", { click: () => filters.reset() }, "Clear filters"),
    ];
  }
  const words = {
    use: ["Nothing is locked", "Locks appear here as soon as somebody takes one."],
    contended: ["Nobody waits", "Locks that somebody waits for appear here."],
    operations: ["No operation is running", "Operations appear here while somebody does them."],
    expired: [
      "Nothing has expired",
      "Leases whose holder stopped renewing appear here until somebody asks for the lock.",
    ],
  }[filters.values.show] ?? ["No locks", "Keys that were used within the last hour appear here."];
  return [h("h2", {}, words[0]), h("p", {}, words[1]), filters.values.show === "use" && h("pre", {}, example())];
}

function example() {
  const who = state.server?.authentication ? ` -H "Authorization: Bearer $TOKEN"` : "";
  const headers = `-H "Content-Type: application/json"${who}`;
  return `curl ${location.origin}/v1/locks/hello/acquire \\\n  ${headers} -d '{"ttl": 60}'`;
}

on("tick", (now) => {
  if (!isShown) return;
  list.each((slot, row) => tickRow(slot, row, now));
  if (!isOnline()) tell();
});
on("event", () => isShown && refresher.kick());
on("change", () => isShown && list.draw());
on("fleet", () => isShown && draw());
on("signed-out", () => {
  lockSet.clear();
  isLoaded = false;
});

export const locksView = {
  title: "Locks",
  element: h("section", { class: "view", "aria-label": "Locks" }, filters.element, grid, foot),
  get address() {
    return filters.address;
  },
  show(parameters) {
    const before = filters.address;
    filters.read(parameters);
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
    if (key === "b" && list.selected?.view.holder) breakDialog(list.selected.key);
    else if (key === "Escape" && filters.isNarrow) filters.reset();
    else return list.pressed(key);
    return true;
  },
};

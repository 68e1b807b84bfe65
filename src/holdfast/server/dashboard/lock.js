// One lock: who has it and for how long yet, who waits, and what happened to it.

import { get, isAskable, lockPath, Problem, query } from "./api.js";
import { breakDialog } from "./breaking.js";
import { h, mark, put, refill } from "./dom.js";
import { fleet, isOfWork } from "./fleet.js";
import { clean, number, workLink } from "./format.js";
import { historyPanel } from "./history.js";
import { holderPanel, holdersOf } from "./holder.js";
import { modeText, stateText } from "./lockrow.js";
import { Row } from "./lockset.js";
import { queuePanel } from "./queue.js";
import { Refresher } from "./refresh.js";
import { resizeDialog } from "./resizing.js";
import { isOnline, may, on, storeNow } from "./state.js";

// What there is to be said of a key that only its history knows.
const FORGOTTEN = {
  state: "free",
  token: 0,
  holder: null,
  expires_in: 0,
  holds: 0,
  waiting: 0,
  waiters: [],
  holders: [],
};

let key = null;
let row = null;
let isShown = false;

const name = h("h1", { tabindex: -1 });
const state = h("span", { class: "badge" });
const mode = h("span", { class: "chip" });
const breakButton = h("button", { class: "danger", click: () => breakDialog(key), "aria-keyshortcuts": "b" }, "Break…");
const resizeButton = h("button", { click: () => row && resizeDialog(row.view) }, "Resize…");
const back = h("a", { class: "back", href: "#/locks" }, "← Locks");
const heading = h("div", { class: "name" }, name, state, mode);
const toWork = h("a", { class: "button" }, "Its work");
const buttons = h("div", { class: "acts" }, toWork, resizeButton, breakButton);
const holder = holderPanel();
const queue = queuePanel();
const history = historyPanel(() => refresher.now());
const trouble = h("div", { class: "empty", hidden: true });
const panels = h("div", { class: "panels" }, holder.element, queue.element, history.element);
const header = h("header", { class: "title" }, back, heading, buttons);
const page = h("section", { class: "view page", "aria-label": "One lock" }, header, trouble, panels);

const refresher = new Refresher(load, (error) => fail("The server did not show this lock", error.message));

async function load() {
  const asked = key;
  if (!isAskable(asked)) {
    fail("A browser cannot ask for this key", "It takes it for a step in a path. Use the command line: holdfast show");
    return;
  }
  const [view, past] = await Promise.all([
    get(lockPath(asked)).catch((error) => {
      if (error instanceof Problem && error.status === 404) return null;
      throw error;
    }),
    get(lockPath(asked, `/history${query({ limit: history.limit })}`)),
  ]);
  if (asked !== key) return;
  if (view) show(view, view.cameAt, past.items);
  else if (past.items.length) show({ ...FORGOTTEN, key, mode: "exclusive", permits: 0 }, past.cameAt, past.items);
  else fail("Nothing is known of this key", "It was never used, or long ago.");
}

function fail(title, message) {
  row = null;
  const link = h("a", { class: "button", href: back.href }, "All locks");
  refill(trouble, h("h2", {}, title), h("p", {}, clean(message)), link);
  mark(trouble, "hidden", false);
  for (const element of [panels, state, mode, ...buttons.children]) mark(element, "hidden", true);
}

function show(view, cameAt, events) {
  row ??= new Row(view.key);
  row.take(view, cameAt, false);
  for (const element of [panels, state]) mark(element, "hidden", false);
  mark(trouble, "hidden", true);
  const [word, meaning] = stateText(row.state);
  put(state, word);
  mark(state, "data-state", row.state);
  mark(state, "title", meaning || null);
  const holding = view.holds ? holdersOf(view) : [];
  put(mode, view.permits ? `semaphore, ${number(view.taken)} of ${number(view.permits)} taken` : modeText(view)[0]);
  mark(mode, "hidden", !mode.textContent);
  mark(mode, "data-mode", view.operation ? "operation" : view.permits ? "permits" : view.mode);
  mark(breakButton, "hidden", holding.length !== 1 || !may("break", view.key)); // of several, each has its own
  mark(resizeButton, "hidden", !view.permits || !may("admin", view.key));
  mark(toWork, "hidden", !events.some(isOfWork) && !fleet.byId.has(view.holder?.owner));
  toWork.href = workLink(view.key);
  holder.draw(row);
  queue.draw(view, cameAt);
  history.draw(events, view.state === "held" ? holding : [], storeNow());
  tick(performance.now());
}

function tick(now) {
  if (!row) return;
  holder.tick(row, now);
  queue.tick(now);
}

on("tick", (now) => {
  if (!isShown) return;
  tick(now);
  if (isOnline()) history.tick(storeNow());
});
on("event", (event) => isShown && event.key === key && refresher.kick());
on("acted", (about) => isShown && about === key && refresher.now());

export const lockView = {
  title: "Lock",
  element: page,
  show(parameters, wanted, listAddress) {
    key = wanted;
    row = null;
    back.href = listAddress;
    put(name, clean(key));
    lockView.title = clean(key);
    for (const element of [panels, state, mode, ...buttons.children, trouble]) mark(element, "hidden", true);
    history.reset();
    isShown = true;
    refresher.start();
    name.focus({ preventScroll: true });
  },
  hide() {
    isShown = false;
    refresher.stop();
  },
  pressed(pressed) {
    if (pressed === "b" && !breakButton.hidden) breakDialog(key);
    else if (pressed === "Escape") location.hash = back.getAttribute("href");
    else if (pressed === "j" || pressed === "k") page.scrollBy({ top: pressed === "j" ? 120 : -120 });
    else return false;
    return true;
  },
};

// One piece of work: how it stands, who has it, what it was offered with, what came of it, and what happened to it.

import { get, isAskable, lockPath, Problem, query, workPath } from "./api.js";
import { breakDialog } from "./breaking.js";
import { h, mark, put, refill } from "./dom.js";
import { fleet } from "./fleet.js";
import { clean, lockLink, moment, pretty } from "./format.js";
import { historyPanel } from "./history.js";
import { holderPanel } from "./holder.js";
import { Row } from "./lockset.js";
import { Refresher } from "./refresh.js";
import { isOnline, may, on, storeNow } from "./state.js";
import { forgetDialog, offerAgainDialog } from "./workacts.js";
import { workStateText } from "./workrow.js";
import { WorkRow } from "./workset.js";

let key = null;
let row = null; // the work
let lock = null; // its lock, while it is assigned
let isShown = false;

const name = h("h1", { tabindex: -1 });
const state = h("span", { class: "badge work" });
const when = h("span", { class: "muted" });
const back = h("a", { class: "back", href: "#/work" }, "← Work");
const toLock = h("a", { class: "button" }, "Its lock");
const againButton = h("button", { click: () => offerAgainDialog(key), "aria-keyshortcuts": "o" }, "Offer again…");
const forgetButton = h(
  "button",
  { class: "danger", click: () => forgetDialog(key), "aria-keyshortcuts": "f" },
  "Forget…",
);
const breakButton = h(
  "button",
  { class: "danger", click: () => breakDialog(key, row.view.token), "aria-keyshortcuts": "b" },
  "Break…",
);
const buttons = h("div", { class: "acts" }, toLock, againButton, forgetButton, breakButton);

const facts = h("dl", { class: "facts" });
const data = h("pre", { class: "code", tabindex: 0 });
const resultTitle = h("span");
const result = h("pre", { class: "code", tabindex: 0 });
const resultPanel = h("section", { class: "panel" }, h("h2", {}, resultTitle), result);
const lease = holderPanel();
const history = historyPanel(() => refresher.now());
const trouble = h("div", { class: "empty", hidden: true });
const panels = h(
  "div",
  { class: "panels" },
  h("div", { class: "stack" }, h("section", { class: "panel" }, h("h2", {}, "Work"), facts), resultPanel),
  h("div", { class: "stack" }, lease.element, h("section", { class: "panel" }, h("h2", {}, "Data"), data)),
  history.element,
);
const header = h("header", { class: "title" }, back, h("div", { class: "name" }, name, state, when), buttons);
const page = h("section", { class: "view page", "aria-label": "One piece of work" }, header, trouble, panels);

const refresher = new Refresher(load, (error) => fail("The server did not show this work", error.message));

const orNothing = (error) => {
  if (error instanceof Problem && error.status === 404) return null;
  throw error;
};

async function load() {
  const asked = key;
  if (!isAskable(asked)) {
    const how = "It takes it for a step in a path. Use the command line: holdfast work show";
    fail("A browser cannot ask for this key", how);
    return;
  }
  const [work, past] = await Promise.all([
    get(workPath(asked)).catch(orNothing),
    get(lockPath(asked, `/history${query({ limit: history.limit })}`)),
    fleet.load(),
  ]);
  const held = work?.state === "assigned" ? await get(lockPath(asked)).catch(orNothing) : null;
  if (asked !== key) return;
  if (work) show(work, held, past.items);
  else fail("There is no such work", "It was never offered, was forgotten, or ended long ago.");
}

function hide(...elements) {
  for (const element of elements) mark(element, "hidden", true);
}

function fail(title, message) {
  row = lock = null;
  const link = h("a", { class: "button", href: back.href }, "All work");
  refill(trouble, h("h2", {}, title), h("p", {}, clean(message)), link);
  mark(trouble, "hidden", false);
  hide(panels, state, when, ...buttons.children);
}

function show(work, held, events) {
  row ??= new WorkRow(work.key);
  row.take(work, work.cameAt, false);
  const isOurs = held?.holder?.token === work.token && held.state === "held";
  lock = isOurs ? (lock ?? new Row(work.key)).take(held, held.cameAt, false) : null;
  for (const element of [panels, state, when, toLock]) mark(element, "hidden", false);
  hide(trouble);
  toLock.href = lockLink(work.key);
  mark(againButton, "hidden", !row.isOver || !may("acquire", work.key));
  mark(forgetButton, "hidden", work.state === "assigned" || !may("break", work.key));
  mark(breakButton, "hidden", !isOurs || !may("break", work.key));
  mark(lease.element, "hidden", !lock);
  if (lock) lease.draw(lock);
  put(data, pretty(work.data));
  mark(resultPanel, "hidden", !work.text);
  put(resultTitle, work.state === "completed" ? "Result" : work.state === "failed" ? "Error" : "Said last");
  mark(result, "data-failed", work.state === "failed");
  put(result, work.state === "completed" ? pretty(work.text) : clean(work.text));
  drawFacts(work);
  history.draw(events, isOurs ? [held.holder] : [], storeNow());
  tick(performance.now());
}

function drawFacts(work) {
  const who = work.instance && fleet.nameOf(work.instance);
  const due = { offered: "To be claimed from", assigned: "Looked at again", completed: "Completed", failed: "Failed" };
  const link = `#/instances?${new URLSearchParams({ show: "all", q: work.instance })}`;
  const isAt = work.state === "assigned";
  const lines = {
    [isAt ? "Instance" : "Last instance"]: who ? h("a", { href: link, title: clean(work.instance) }, who) : "none yet",
    Tries: work.max_tries ? `${work.tries} of ${work.max_tries}` : `${work.tries}, of any number`,
    Offered: moment(work.offered_at),
    [isAt ? "Assigned" : "Last assigned"]: work.assigned_at ? moment(work.assigned_at) : "never",
    [due[work.state]]: moment(work.due_at),
    Token: work.token ? String(work.token) : "none yet",
  };
  refill(
    facts,
    Object.entries(lines).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

function tick(now) {
  if (!row) return;
  const [word, meaning] = workStateText(row.state);
  put(state, word);
  mark(state, "data-state", row.state);
  mark(state, "title", meaning || null);
  const words = { offered: "due for", assigned: "for", later: "to be claimed" }[row.state] ?? "";
  put(when, `${words} ${row.when}`.trim());
  if (lock) lease.tick(lock, now);
}

on("tick", (now) => {
  if (!isShown) return;
  tick(now);
  if (isOnline()) history.tick(storeNow());
});
on("event", (event) => isShown && event.key === key && refresher.kick());
on("acted", (about) => isShown && about === key && refresher.now());

export const workView = {
  title: "Work",
  element: page,
  show(parameters, wanted, listAddress) {
    key = wanted;
    row = lock = null;
    back.href = listAddress;
    put(name, clean(key));
    workView.title = clean(key);
    hide(panels, state, when, trouble, ...buttons.children);
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
    if (pressed === "b" && !breakButton.hidden) breakDialog(key, row.view.token);
    else if (pressed === "o" && !againButton.hidden) offerAgainDialog(key);
    else if (pressed === "f" && !forgetButton.hidden) forgetDialog(key);
    else if (pressed === "Escape") location.hash = back.getAttribute("href");
    else if (pressed === "j" || pressed === "k") page.scrollBy({ top: pressed === "j" ? 120 : -120 });
    else return false;
    return true;
  },
};

// The instances that have joined to do work: who is there, how busy each is, who has left or died.

import { fillBar, h, keyed, mark, put, refill, say } from "../lib/dom.js";
import { Filters } from "../lib/filters.js";
import { fleet } from "../lib/fleet.js";
import { clean, count, number } from "../lib/format.js";
import { Refresher } from "../lib/refresh.js";
import { RowSet } from "../lib/rowset.js";
import { may, on } from "../lib/state.js";
import { bindCard, makeCard, tickCard } from "./instancecard.js";
import { WORKS } from "./workset.js";

const MOST_SHOWN = 300;
const MOST_WORK = 3000;
const TABS = [
  { name: "there", title: "There", test: (member) => !member.isGone },
  { name: "gone", title: "Left or died", test: (member) => member.isGone },
  { name: "all", title: "All" },
];

const assigned = new RowSet({ ...WORKS, states: { all: ["assigned"] } });

const filters = new Filters({
  path: "#/instances",
  tabs: TABS,
  empty: { show: "there", q: "" },
  label: "Which instances",
  search: "Search names, hosts, versions",
  searchLabel: "Search names, ids, hosts and versions",
  changed: draw,
});
const total = h("i");
const totalText = h("span", { class: "muted" });
const load = h("div", { class: "fleet-load", hidden: true }, totalText, h("i", { class: "bar" }, total));
filters.element.append(load);
const cards = h("div", { class: "cards" });
const empty = h("div", { class: "empty", hidden: true });
const told = h("span", { role: "status" });
const area = h("div", { class: "fleet" }, cards, empty);
const foot = h("footer", { class: "foot" }, told);
const element = h("section", { class: "view", "aria-label": "Instances" }, filters.element, area, foot);

const loadAll = () => Promise.all([fleet.load(), assigned.load({ show: "all" }, MOST_WORK)]);
const refresher = new Refresher(loadAll, draw);

function draw() {
  if (!element.isConnected) return;
  const { isLoaded, problem } = refresher;
  const found = filters.apply(fleet.members);
  if (!isLoaded) for (const tab of filters.tabs.children) put(tab.lastChild, "");
  const shown = found.slice(0, MOST_SHOWN);
  const works = Map.groupBy(assigned.rows, (row) => row.view.instance);
  for (const rows of works.values()) rows.sort((a, b) => a.view.assigned_at - b.view.assigned_at);
  const update = (card, member) => bindCard(card, member, works.get(member.view.id) ?? []);
  keyed(cards, shown, ({ view }) => view.id, makeCard, update);
  drawTotal();
  const hidden = found.length > shown.length ? ", the first of them are shown" : "";
  put(told, problem ? clean(problem) : isLoaded ? `${count(shown.length, "instance")}${hidden}` : "Loading…");
  mark(empty, "hidden", shown.length > 0 || (!isLoaded && !problem));
  if (!shown.length) refill(empty, ...nothing());
}

function drawTotal() {
  const there = fleet.members.filter((member) => !member.isGone);
  const sum = (name) => there.reduce((all, { view }) => all + view[name], 0);
  const [taken, capacity] = [sum("assigned"), sum("capacity")];
  mark(load, "hidden", !capacity);
  fillBar(total, capacity ? taken / capacity : 0);
  put(totalText, `${number(taken)} of ${number(capacity)} places taken`);
}

const clear = () => filters.set(filters.empty);

function nothing() {
  if (!may("observe")) return say("No rights to look", "This access token may not observe any instance.");
  if (refresher.problem) return say("The server did not list the instances", clean(refresher.problem));
  const button = h("button", { click: clear }, "Clear filters");
  if (filters.values.q) return say("Nothing matches", "No instance here is like that.", button);
  if (filters.values.show === "gone") {
    return say("Nobody has left or died", "Of late. Instances are forgotten after a while.");
  }
  const how = h("pre", {}, "with locks.join(capacity=8) as instance:\n    for work in instance.claims(\"report\"): …");
  return say("Nobody has joined", "Processes that join to do work appear here.", how);
}

/** Move to another card. */
function step(by) {
  const links = [...cards.querySelectorAll("a.who")];
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? 0 : Math.max(0, Math.min(links.length - 1, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
  return links.length > 0;
}

on("tick", (now) => {
  if (element.isConnected) for (const card of cards.children) tickCard(card, now);
});
on("event", () => element.isConnected && refresher.kick());
on("signed-out", () => (refresher.isLoaded = false));

export const instancesView = {
  title: "Instances",
  element,
  show(parameters) {
    filters.read(parameters);
    draw();
    refresher.start();
  },
  hide: () => refresher.stop(),
  search: () => filters.search,
  pressed(key) {
    if (key === "j" || key === "ArrowDown" || key === "ArrowRight") return step(1);
    if (key === "k" || key === "ArrowUp" || key === "ArrowLeft") return step(-1);
    if (key !== "Escape" || filters.address === filters.path) return false;
    clear();
    return true;
  },
};

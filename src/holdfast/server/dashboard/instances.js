// The instances that have joined to do work: who is there, how busy each is, who has left or died.

import { h, keyed, mark, put, refill } from "./dom.js";
import { fleet } from "./fleet.js";
import { clean, count, number } from "./format.js";
import { bindCard, makeCard, tickCard } from "./instancecard.js";
import { Refresher } from "./refresh.js";
import { may, on } from "./state.js";
import { WorkRow } from "./workset.js";
import { RowSet } from "./rowset.js";

const MOST_SHOWN = 300;
const MOST_WORK = 3000;
const TABS = [
  { name: "there", title: "There", test: (member) => !member.isGone },
  { name: "gone", title: "Left or died", test: (member) => member.isGone },
  { name: "all", title: "All", test: () => true },
];

const assigned = new RowSet({ path: "/v1/work", items: "works", states: { all: ["assigned"] }, Row: WorkRow });
let show = "there";
let text = "";
let problem = "";
let isLoaded = false;
let isShown = false;

const search = h("input", {
  type: "search",
  placeholder: "Search names, hosts, versions",
  "aria-label": "Search names, ids, hosts and versions",
  autocomplete: "off",
  spellcheck: "false",
  "aria-keyshortcuts": "/",
  input: () => choose({ q: search.value }),
});
const tab = ({ name, title }) =>
  h("button", { "data-tab": name, click: () => choose({ show: name }) }, title, h("span", { class: "count" }));
const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Which instances" }, TABS.map(tab));
const total = h("i");
const totalText = h("span", { class: "muted" });
const load = h("div", { class: "fleet-load", hidden: true }, totalText, h("i", { class: "bar" }, total));
const cards = h("div", { class: "cards" });
const empty = h("div", { class: "empty", hidden: true });
const told = h("span", { role: "status" });

const refresher = new Refresher(
  async () => {
    await Promise.all([fleet.load(), assigned.load({ show: "all" }, MOST_WORK)]);
    problem = "";
    isLoaded = true;
    draw();
  },
  (error) => {
    problem = error.message;
    draw();
  },
);

function choose(values) {
  ({ show, q: text } = { show, q: text, ...values });
  history.replaceState(null, "", address());
  draw();
}

function address() {
  const given = { ...(show !== "there" && { show }), ...(text && { q: text }) };
  return Object.keys(given).length ? `#/instances?${new URLSearchParams(given)}` : "#/instances";
}

function draw() {
  if (!isShown) return;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = fleet.members.filter((member) => words.every((word) => member.text.includes(word)));
  for (const [index, { name, test }] of TABS.entries()) {
    const button = tabs.children[index];
    mark(button, "aria-pressed", String(name === show));
    put(button.lastChild, isLoaded ? number(found.filter(test).length) : "");
  }
  if (search.value !== text) search.value = text;
  const shown = found.filter(TABS.find((each) => each.name === show).test).slice(0, MOST_SHOWN);
  const works = Map.groupBy(assigned.rows, (row) => row.view.instance);
  for (const rows of works.values()) rows.sort((a, b) => a.view.assigned_at - b.view.assigned_at);
  keyed(
    cards,
    shown,
    ({ view }) => view.id,
    makeCard,
    (card, member) => bindCard(card, member, works.get(member.view.id) ?? []),
  );
  drawTotal();
  const hidden = found.length > shown.length && shown.length === MOST_SHOWN ? ", the first of them are shown" : "";
  put(told, isLoaded && !problem ? `${count(shown.length, "instance")}${hidden}` : problem ? clean(problem) : "Loading…");
  mark(empty, "hidden", shown.length > 0 || (!isLoaded && !problem));
  if (!shown.length) refill(empty, ...nothing());
}

function drawTotal() {
  const there = fleet.members.filter((member) => !member.isGone);
  const sum = (name) => there.reduce((all, { view }) => all + view[name], 0);
  const [taken, capacity] = [sum("assigned"), sum("capacity")];
  mark(load, "hidden", !capacity);
  total.style.transform = `scaleX(${capacity ? Math.min(1, taken / capacity) : 0})`;
  put(totalText, `${number(taken)} of ${number(capacity)} places taken`);
}

function nothing() {
  const say = (title, about, ...rest) => [h("h2", {}, title), h("p", {}, about), ...rest];
  if (!may("observe")) return say("No rights to look", "This access token may not observe any instance.");
  if (problem) return say("The server did not list the instances", clean(problem));
  if (text) {
    return say(
      "Nothing matches",
      "No instance here is like that.",
      h("button", { click: () => choose({ q: "", show: "there" }) }, "Clear filters"),
    );
  }
  if (show === "gone") return say("Nobody has left or died", "Of late. Instances are forgotten after a while.");
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
  if (isShown) for (const card of cards.children) tickCard(card, now);
});
on("event", () => isShown && refresher.kick());
on("signed-out", () => {
  assigned.clear();
  isLoaded = false;
});

export const instancesView = {
  title: "Instances",
  element: h(
    "section",
    { class: "view", "aria-label": "Instances" },
    h(
      "div",
      { class: "toolbar" },
      h("label", { class: "search" }, search, h("kbd", { "aria-hidden": "true" }, "/")),
      tabs,
      load,
    ),
    h("div", { class: "fleet" }, cards, empty),
    h("footer", { class: "foot" }, told),
  ),
  show(parameters) {
    text = parameters.get("q") ?? "";
    show = TABS.some(({ name }) => name === parameters.get("show")) ? parameters.get("show") : "there";
    isShown = true;
    draw();
    refresher.start();
  },
  hide() {
    isShown = false;
    refresher.stop();
  },
  search: () => search,
  pressed(key) {
    if (key === "j" || key === "ArrowDown" || key === "ArrowRight") return step(1);
    if (key === "k" || key === "ArrowUp" || key === "ArrowLeft") return step(-1);
    if (key !== "Escape" || (!text && show === "there")) return false;
    choose({ q: "", show: "there" });
    return true;
  },
};

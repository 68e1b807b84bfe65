// The event stream, live: newest first, to be filtered and paused.

import { debounced, h, label, mark, put, refill, say, searchBox } from "../lib/dom.js";
import { eventLink, fleet } from "../lib/fleet.js";
import { clean, clock, count, kindText, moment, number } from "../lib/format.js";
import { journal } from "../lib/journal.js";
import { hasToken } from "../lib/spans.js";
import { may, on, state } from "../lib/state.js";
import { glyph, KINDS } from "../lib/timeline.js";
import { cell, VirtualList } from "../lib/virtual.js";

const NOTABLE = ". Of operations everything is recorded; of other locks what goes wrong, not grants and releases";
const TITLES = { time: "Time", kind: "What", key: "Key", owner: "Owner", detail: "By, reason", token: "Token" };

let held = null; // while paused: the events as they were
let newest = 0; // id of the first row

const [search, searchFrame] = searchBox("Prefix of a key", "Only keys that begin with", draw);
const kinds = h(
  "select",
  { "aria-label": "Kind", change: draw },
  h("option", { value: "" }, "Every kind"),
  KINDS.map((each) => h("option", { value: each }, kindText(each))),
);
const pause = h("button", { "aria-pressed": "false", "aria-keyshortcuts": "p", click: toggle }, "Pause");
const live = h("span", { class: "muted", role: "status" });
const told = h("span");

const list = new VirtualList({
  title: "Events",
  name: "journal",
  columns: Object.entries(TITLES).map(([name, title]) => ({ name, title })),
  make() {
    const slot = Object.fromEntries(Object.keys(TITLES).map((name) => [name, cell(name)]));
    slot.element = h("div", { class: "row", role: "row" }, Object.values(slot));
    slot.link = slot.key.appendChild(h("a", { tabindex: -1 }));
    return slot;
  },
  bind(slot, event) {
    if (slot.shows === event) return;
    slot.shows = event;
    label(slot.time, clock(event.at), moment(event.at));
    refill(slot.kind, glyph(event.kind), kindText(event.kind));
    mark(slot.element, "data-kind", event.kind);
    put(slot.link, clean(event.key));
    slot.link.href = eventLink(event);
    label(slot.owner, fleet.nameOf(event.owner), clean(event.owner));
    label(slot.detail, [event.by && `by ${clean(event.by)}`, clean(event.reason)].filter(Boolean).join(": "));
    put(slot.token, hasToken(event) ? String(event.token) : "");
  },
  keyOf: (event) => event.id,
  open: (event) => (location.hash = eventLink(event)),
});
const toolbar = h("div", { class: "toolbar" }, searchFrame, kinds, pause, live);
const foot = h("footer", { class: "foot" }, told);
const element = h("section", { class: "view", "aria-label": "Events" }, toolbar, list.grid, foot);

function toggle() {
  held = held ? null : [...journal];
  mark(pause, "aria-pressed", held !== null);
  put(pause, held ? "Resume" : "Pause");
  draw();
}

function draw() {
  if (!element.isConnected) return;
  const [kind, text] = [kinds.value, search.value];
  const matches = (event) => (!kind || event.kind === kind) && event.key.startsWith(text);
  const found = (held ?? journal).filter(matches).reverse();
  const grownBy = newest ? found.findIndex((event) => event.id <= newest) : 0;
  newest = found[0]?.id ?? 0;
  list.set(found, { grownBy: Math.max(0, grownBy) });
  mark(list.empty, "hidden", found.length > 0);
  if (!found.length) refill(list.empty, ...nothing());
  put(told, `${count(found.length, "event")}${state.server?.history === "notable" ? NOTABLE : ""}`);
  tell();
}

function nothing() {
  if (!may("observe")) return say("No rights to look", "This access token may not observe any lock.");
  if (kinds.value || search.value) return say("Nothing matches", "No event that is known here is like that.");
  return say("Nothing has happened yet", "Events appear here when they happen.");
}

function tell() {
  put(live, held ? paused() : following());
}

function paused() {
  const missed = journal.filter((event) => event.id > (held.at(-1)?.id ?? 0)).length;
  return `Paused${missed ? `, ${number(missed)} new` : ""}`;
}

function following() {
  if (state.stream === "live") return "";
  return state.stream === "denied" || !may("observe") ? "No right to follow" : "Connecting…";
}

const soon = debounced(draw, 60);
on("journal", () => element.isConnected && (held ? tell() : soon()));
on("change", () => element.isConnected && tell());
on("fleet", () => {
  list.each((slot) => (slot.shows = null)); // some have a name now
  soon();
});

export const eventsView = {
  title: "Events",
  element,
  show: draw,
  hide() {},
  search: () => search,
  pressed(key) {
    if (key === "p") toggle();
    else if (key === "Escape" && (search.value || kinds.value)) {
      search.value = kinds.value = "";
      draw();
    } else return list.pressed(key);
    return true;
  },
};

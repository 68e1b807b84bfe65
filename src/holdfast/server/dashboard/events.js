// The event stream, live: newest first, to be filtered and paused.

import { debounced, h, mark, put, refill } from "./dom.js";
import { eventLink, fleet } from "./fleet.js";
import { clean, clock, count, kindText, moment, number } from "./format.js";
import { journal } from "./journal.js";
import { hasToken } from "./spans.js";
import { may, on, state } from "./state.js";
import { glyph, KINDS } from "./timeline.js";
import { VirtualList } from "./virtual.js";

const NOTABLE = ". Of operations everything is recorded; of other locks what goes wrong, not grants and releases";

let kind = "";
let text = "";
let held = null; // while paused: the events as they were
let isShown = false;
let newest = 0; // id of the first row

const search = h("input", {
  type: "search",
  placeholder: "Prefix of a key",
  "aria-label": "Only keys that begin with",
  autocomplete: "off",
  spellcheck: "false",
  "aria-keyshortcuts": "/",
  input: () => ((text = search.value), draw()),
});
const kinds = h(
  "select",
  { "aria-label": "Kind", change: () => ((kind = kinds.value), draw()) },
  h("option", { value: "" }, "Every kind"),
  KINDS.map((each) => h("option", { value: each }, kindText(each))),
);
const pause = h("button", { "aria-pressed": "false", "aria-keyshortcuts": "p", click: toggle }, "Pause");
const live = h("span", { class: "muted", role: "status" });
const body = h("div", { class: "rows", role: "rowgroup" });
const empty = h("div", { class: "empty", hidden: true });
const heads = [
  ["time", "Time"],
  ["kind", "What"],
  ["key", "Key"],
  ["owner", "Owner"],
  ["detail", "By, reason"],
  ["token", "Token"],
];
const grid = h(
  "div",
  { class: "table journal", role: "grid", tabindex: 0, "aria-label": "Events" },
  h(
    "div",
    { class: "head", role: "row" },
    heads.map(([name, title]) => h("div", { class: `cell ${name}`, role: "columnheader" }, title)),
  ),
  body,
  empty,
);
const told = h("span");

const list = new VirtualList(grid, body, {
  make() {
    const cell = (name, ...children) => h("div", { class: `cell ${name}`, role: "gridcell" }, ...children);
    const slot = {
      time: cell("time"),
      kind: cell("kind"),
      link: h("a", { tabindex: -1 }),
      owner: cell("owner"),
      detail: cell("detail"),
      token: cell("token"),
    };
    slot.key = cell("key", slot.link);
    slot.element = h(
      "div",
      { class: "row", role: "row" },
      slot.time,
      slot.kind,
      slot.key,
      slot.owner,
      slot.detail,
      slot.token,
    );
    return slot;
  },
  bind(slot, event) {
    if (slot.shows === event) return;
    slot.shows = event;
    put(slot.time, clock(event.at));
    mark(slot.time, "title", moment(event.at));
    refill(slot.kind, glyph(event.kind), kindText(event.kind));
    mark(slot.element, "data-kind", event.kind);
    put(slot.link, clean(event.key));
    slot.link.href = eventLink(event);
    put(slot.owner, fleet.nameOf(event.owner));
    mark(slot.owner, "title", clean(event.owner) || null);
    const detail = [event.by && `by ${clean(event.by)}`, event.reason && clean(event.reason)]
      .filter(Boolean)
      .join(": ");
    put(slot.detail, detail);
    mark(slot.detail, "title", detail || null);
    put(slot.token, hasToken(event) ? String(event.token) : "");
  },
  keyOf: (event) => event.id,
  open: (event) => (location.hash = eventLink(event)),
});

function toggle() {
  held = held ? null : [...journal];
  mark(pause, "aria-pressed", held !== null);
  put(pause, held ? "Resume" : "Pause");
  draw();
}

function draw() {
  if (!isShown) return;
  const found = (held ?? journal)
    .filter((event) => (!kind || event.kind === kind) && event.key.startsWith(text))
    .reverse();
  const grownBy = newest
    ? Math.max(
        0,
        found.findIndex((event) => event.id <= newest),
      )
    : 0;
  newest = found[0]?.id ?? 0;
  list.set(found, { grownBy });
  mark(empty, "hidden", found.length > 0);
  if (!found.length) refill(empty, ...nothing());
  put(told, `${count(found.length, "event")}${state.server?.history === "notable" ? NOTABLE : ""}`);
  tell();
}

function nothing() {
  if (!may("observe"))
    return [h("h2", {}, "No rights to look"), h("p", {}, "This access token may not observe any lock.")];
  if (kind || text) return [h("h2", {}, "Nothing matches"), h("p", {}, "No event that is known here is like that.")];
  return [h("h2", {}, "Nothing has happened yet"), h("p", {}, "Events appear here when they happen.")];
}

function tell() {
  const missed = held ? journal.filter((event) => event.id > (held.at(-1)?.id ?? 0)).length : 0;
  put(
    live,
    held
      ? `Paused${missed ? `, ${number(missed)} new` : ""}`
      : state.stream === "live"
        ? ""
        : state.stream === "denied" || !may("observe")
          ? "No right to follow"
          : "Connecting…",
  );
}

const soon = debounced(draw, 60);
on("journal", () => isShown && (held ? tell() : soon()));
on("change", () => isShown && tell());
on("fleet", () => {
  list.each((slot) => (slot.shows = null)); // some have a name now
  soon();
});

export const eventsView = {
  title: "Events",
  element: h(
    "section",
    { class: "view", "aria-label": "Events" },
    h(
      "div",
      { class: "toolbar" },
      h("label", { class: "search" }, search, h("kbd", { "aria-hidden": "true" }, "/")),
      kinds,
      pause,
      live,
    ),
    grid,
    h("footer", { class: "foot" }, told),
  ),
  show() {
    isShown = true;
    draw();
  },
  hide() {
    isShown = false;
  },
  search: () => search,
  pressed(key) {
    if (key === "p") toggle();
    else if (key === "Escape" && (text || kind)) {
      text = kind = search.value = kinds.value = "";
      draw();
    } else return list.pressed(key);
    return true;
  },
};

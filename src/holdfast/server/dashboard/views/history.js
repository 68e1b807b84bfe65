// What happened to a lock: the timeline, and a table of the same events that can be read line by line.

import { h, keyed, mark, panel, put, table } from "../lib/dom.js";
import { fleet } from "../lib/fleet.js";
import { clean, count, kindText, moment } from "../lib/format.js";
import { hasToken } from "../lib/spans.js";
import { state } from "../lib/state.js";
import { glyph, timeline } from "../lib/timeline.js";

const AT_FIRST = 100;
const MORE = 1000;
const NOTABLE = "By default what went wrong is kept, and everything of operations; plain grants and releases are not.";

/** The panel. `reload` is called when more events are wanted; how many is in `limit`. */
export function historyPanel(reload) {
  const rows = h("tbody");
  const chart = timeline((number) => {
    for (const row of rows.children) mark(row, "data-picked", number !== null && row.dataset.key === number);
  });
  const list = table(rows, ["#", "num"], "Time", "What", "Owner", "By", "Token", "Reason");
  const none = h("p", { class: "muted" }, "Nothing was kept of what happened to this lock.");
  const more = () => {
    history.limit = MORE;
    reload();
  };
  const older = h("button", { class: "quiet", hidden: true, click: more }, "Show older events");
  const note = h("p", { class: "muted" });
  const title = h("span", { class: "count" });
  const parts = [chart.element, none, h("div", { class: "scroll" }, list), older, note];
  const element = panel("panel wide", ["History", title, chart.ranges], ...parts);
  rows.addEventListener("pointerover", (event) => highlight(event.target.closest("tr")?.dataset.key));
  rows.addEventListener("pointerleave", () => highlight(null));
  let shown = { events: [], holders: [] };

  function highlight(number) {
    for (const each of chart.element.querySelectorAll(".mark")) {
      mark(each, "data-picked", number && each.dataset.number === number);
    }
  }

  const history = {
    element,
    limit: AT_FIRST,
    reset() {
      history.limit = AT_FIRST;
      rows.replaceChildren();
      shown = { events: [], holders: [] };
    },
    draw(events, holders, now) {
      shown = { events, holders: holders.map((holder) => ({ ...holder, since: now - holder.held_for })) };
      const isBlank = !events.length && !holders.length;
      for (const part of [chart.element, chart.ranges]) mark(part, "hidden", isBlank);
      mark(list, "hidden", !events.length);
      mark(none, "hidden", events.length > 0);
      put(title, events.length ? count(events.length, "event") : "");
      mark(older, "hidden", !(events.length >= history.limit && history.limit < MORE));
      put(note, state.server?.history === "notable" ? NOTABLE : "");
      keyed(rows, events.toReversed(), (event) => event.number, makeRow);
      chart.show({ events, holders, now });
    },
    tick(now) {
      if (!shown.holders.length && !shown.events.length) return;
      const holders = shown.holders.map((holder) => ({ ...holder, held_for: now - holder.since }));
      chart.show({ events: shown.events, holders, now });
    },
  };
  return history;
}

function makeRow(event) {
  return h(
    "tr",
    { "data-kind": event.kind },
    h("td", { class: "num muted" }, String(event.number)),
    h("td", { class: "time" }, moment(event.at)),
    h("td", { class: "kind" }, glyph(event.kind), kindText(event.kind)),
    h("td", { class: "text", title: clean(event.owner) }, fleet.nameOf(event.owner)),
    h("td", { class: "text" }, clean(event.by)),
    h("td", { class: "token muted" }, hasToken(event) ? String(event.token) : ""),
    h("td", { class: "text reason" }, clean(event.reason)),
  );
}

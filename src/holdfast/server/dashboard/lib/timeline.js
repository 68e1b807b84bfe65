// A lock's history as a picture: leases as bars, what happened as marks, from left to right until now.

import { h, mark, refill, svg } from "./dom.js";
import { fleet } from "./fleet.js";
import { clean, clock, count, day, duration, exactly, kindText, moment } from "./format.js";
import { leases, ticks } from "./spans.js";

const RANGES = { "1 min": 60, "10 min": 600, "1 h": 3600, "1 day": 86400, All: Infinity };
const LANE = 16;
const TOP = 8;
const MARKS = 26; // the height of the row of marks
const AXIS = 20;
const ENOUGH = 6; // events make a range worth showing

// Each kind is told by its form, not by its colour alone.
const SHAPES = {
  granted: "M-3.5,-4 L4,0 L-3.5,4 Z",
  handed_over: "M-4,-4 L0,0 L-4,4 Z M0,-4 L4,0 L0,4 Z",
  queued: "M0,-3 A3,3 0 1 0 0.01,-3 Z",
  released: "M-3,-3 H3 V3 H-3 Z",
  withdrawn: "M-3,-3 L3,3 M3,-3 L-3,3",
  expired: "M0,-4.5 L4.5,3.5 H-4.5 Z",
  broken: "M0,-5 L5,0 L0,5 L-5,0 Z",
  completed: "M-4.5,0 L-1.5,3.5 L4.5,-3.5",
  failed: "M-4,-4 L4,4 M4,-4 L-4,4",
  downgraded: "M0,4.5 L4.5,-3.5 H-4.5 Z",
  resized: "M-5,0 H5 M-5,-3 V3 M5,-3 V3",
  deadlocked: "M-4,-4 H4 V4 H-4 Z M-4,-4 L4,4",
  assigned: "M-4,-4 L0,0 L-4,4 M4,-4 V4",
  returned: "M4,-3 H-1 A3,3 0 0 0 -1,3 H4 M1,-5.5 L4,-3 L1,-0.5",
  abandoned: "M-4.5,-3.5 H4.5 L0,4.5 Z M0,-1.5 V0.5",
  forgotten: "M-4,-3 H4 M-3,-3 L-2,4.5 H2 L3,-3 M-1.5,-4.5 H1.5",
  joined: "M0,-4.5 V4.5 M-4.5,0 H4.5",
  draining: "M-4,-4 H4 M-4,0 H1 M-4,4 H-2",
  left: "M-4.5,0 H4.5",
  died: "M-4.5,-1 H4.5 M0,-4.5 V5",
};

export const KINDS = Object.keys(SHAPES);

/** Return the sign of a kind of event, to stand beside text. */
export function glyph(kind) {
  const about = { class: "glyph", viewBox: "-7 -7 14 14", "aria-hidden": "true", "data-kind": kind };
  return svg("svg", about, shape(kind));
}

const shape = (kind) => svg("path", { d: SHAPES[kind] ?? SHAPES.queued });

/** The picture, with a choice of how far back it goes. `onPick(number)` is called when an event is pointed at. */
export function timeline(onPick) {
  let data = { events: [], holders: [], now: 0 };
  let chosen = null; // seconds; null: whatever shows enough
  let drawn = { what: "", at: 0, pixel: 0 };
  const picture = svg("svg", { class: "timeline", role: "img" });
  const element = h("div", { class: "history-picture" }, picture);
  const buttons = Object.entries(RANGES).map(([text, range]) =>
    h("button", { click: () => redraw((chosen = range)) }, text),
  );
  picture.addEventListener("pointerover", ({ target }) =>
    onPick(target.closest("[data-number]")?.dataset.number ?? null),
  );
  picture.addEventListener("pointerleave", () => onPick(null));
  new ResizeObserver(() => redraw()).observe(element);

  function redraw() {
    const width = element.clientWidth;
    if (!width || !data.now) return;
    const now = Math.max(data.now, data.events.at(-1)?.at ?? 0);
    const all = leases(data.events, data.holders, now);
    const range = chosen ?? fitting(data.events, all, now);
    for (const button of buttons) mark(button, "aria-pressed", String(RANGES[button.textContent] === range));
    const from = draw(picture, width, { ...data, now }, all, range);
    drawn = { what: what(data), at: data.now, pixel: (now - from) / width };
  }

  return {
    element,
    ranges: h("div", { class: "segments", role: "group", "aria-label": "How far back" }, buttons),
    /** Show this; but leave the picture alone while somebody points at it, or nothing would move. */
    show(next) {
      data = next;
      const isSame = what(data) === drawn.what;
      if (!isSame || (data.now - drawn.at >= drawn.pixel && !element.matches(":hover"))) redraw();
    },
  };
}

/** Return what tells one picture from another, apart from the time. */
function what({ events, holders }) {
  return `${events.length} ${events.at(-1)?.number} ${events[0]?.key} ${holders.map((holder) => holder.token)}`;
}

/** Return the shortest range with enough in it. */
function fitting(events, all, now) {
  const seen = events.at(-Math.min(events.length, ENOUGH))?.at ?? now;
  const held = all.filter((each) => each.end === null).map((each) => each.from);
  return Object.values(RANGES).find((range) => now - Math.min(seen, ...held) <= range * 0.95);
}

/** Draw, and return from when on. */
function draw(picture, width, { events, now }, all, range) {
  const first = Math.min(events[0]?.at ?? now, ...all.map((each) => each.from), now - 10);
  const from = range === Infinity ? first - (now - first) * 0.02 : now - range;
  const seen = all.filter((each) => each.to >= from);
  const marks = events.filter((event) => event.at >= from);
  const lanes = Math.max(1, ...seen.map((each) => each.lane + 1));
  const height = TOP + lanes * LANE + MARKS + AXIS;
  const right = width - 10;
  const x = (at) => Number((((at - from) / (now - from)) * right).toFixed(1));
  const text = `${count(seen.length, "lease")} and ${count(marks.length, "event")} in ${duration(now - from)}`;
  const about = { viewBox: `0 0 ${width} ${height}`, width, height, "aria-label": text };
  for (const [name, value] of Object.entries(about)) mark(picture, name, value);
  const scale = ticks(from, now, Math.max(2, Math.floor(width / 110)));
  const line = (style, at) => svg("line", { class: style, x1: at, x2: at, y1: 0, y2: height - AXIS });
  const label = (at) => svg("text", { x: x(at) + 4, y: height - 6 }, scale.step >= 86400 ? day(at) : clock(at));
  refill(
    picture,
    scale.at.map((at) => svg("g", { class: "tick" }, line("", x(at)), x(at) < width - 60 && label(at))),
    seen.map((each) => bar(each, x)),
    line("now", right),
    marks.map((event) => sign(event, x(event.at), TOP + lanes * LANE + MARKS / 2)),
  );
  return from;
}

function bar(each, x) {
  const left = Math.max(0, x(each.from));
  const wide = Math.max(2, x(each.to) - left);
  const top = TOP + each.lane * LANE;
  const [end, to] = each.end ? [kindText(each.end), ` to ${moment(each.to)}`] : ["held now", ""];
  const text = `${fleet.nameOf(each.owner)}: ${exactly(each.to - each.from)}, ${end}\nfrom ${moment(each.from)}${to}`;
  const name = fleet.nameOf(each.owner).slice(0, Math.floor((wide - 8) / 6.4));
  return svg(
    "g",
    { class: "lease", "data-end": each.end ?? "held" },
    svg("rect", { x: left, y: top, width: wide, height: LANE - 3, rx: 2 }),
    wide > 60 && svg("text", { x: left + 5, y: top + 10 }, name),
    svg("title", {}, text),
  );
}

function sign(event, x, y) {
  const text = [moment(event.at), `${kindText(event.kind)}${event.owner ? `: ${fleet.nameOf(event.owner)}` : ""}`];
  if (event.reason) text.push(clean(event.reason));
  return svg(
    "g",
    { class: "mark", "data-kind": event.kind, "data-number": event.number, transform: `translate(${x},${y})` },
    shape(event.kind),
    svg("title", {}, text.join("\n")),
  );
}

// One instance as a card: how it is, how much of its capacity is taken, what it is at, and when it was last heard of.

import { fillBar, h, keyed, label, mark, put, refill } from "../lib/dom.js";
import { clean, duration, number, place, workLink } from "../lib/format.js";
import { isOnline, storeNow } from "../lib/state.js";

const MOST_PARTS = 32; // a capacity up to this is drawn as so many parts
const MOST_WORK = 5;

const STATES = {
  alive: "It is heard of, and takes work",
  draining: "It takes no more work, and finishes what it has",
  left: "It has left, and gave back what it had",
  dead: "It was not heard of for too long: others take over what it had",
};

const IDLE = {
  alive: "Waits for work.",
  draining: "Has finished.",
  left: "Has finished, or gave back what it had.",
  dead: "Nothing is left of its work: it had none, or others have taken over.",
};

/** Return an empty card. */
export function makeCard() {
  const name = h("a", { class: "who" });
  const badge = h("span", { class: "badge instance" });
  const about = h("p", { class: "muted about" });
  const parts = h("span", { class: "parts", "aria-hidden": "true" });
  const taken = h("span", { class: "taken" });
  const work = h("ul", { class: "at-work" });
  const rest = h("p", { class: "muted rest" });
  const beat = h("span", { class: "muted" });
  const bar = h("i");
  const left = h("span", { class: "muted num" });
  const foot = h("footer", {}, beat, h("i", { class: "bar" }, bar), left);
  const head = h("header", {}, h("i", { class: "dot" }), name, badge);
  const card = h("article", { class: "card" }, head, about, h("div", { class: "load" }, parts, taken), work, rest, foot);
  card.parts = { name, badge, about, parts, taken, work, rest, beat, bar, left };
  return card;
}

/** Show an instance; `works` is what it has, those that it has longest first. */
export function bindCard(card, member, works) {
  const { view } = member;
  const at = card.parts;
  card.member = member;
  card.works = works;
  mark(card, "data-state", view.state);
  label(at.name, clean(view.name || view.id), clean(view.id));
  mark(at.name, "href", `#/work?${new URLSearchParams({ instance: view.id, ...(member.isGone && { show: "all" }) })}`);
  label(at.badge, view.state, STATES[view.state]);
  mark(at.badge, "data-state", view.state);
  drawLoad(at, view);
  const make = (row) => h("li", {}, h("a", { href: workLink(row.key), title: row.shown }, row.shown), h("span"));
  keyed(at.work, works.slice(0, MOST_WORK), (row) => row.key, make);
  const hidden = Math.max(view.assigned, works.length) - Math.min(works.length, MOST_WORK);
  const unseen = view.state === "dead" ? `${number(view.assigned)} to be taken over by others` : "";
  const over = view.assigned ? unseen : IDLE[view.state];
  put(at.rest, hidden > 0 && works.length ? `and ${number(hidden)} more` : works.length ? "" : over);
  mark(at.rest, "data-late", view.state === "dead" && view.assigned > 0);
  tickCard(card, performance.now());
}

function drawLoad(at, view) {
  const wanted = view.capacity <= MOST_PARTS ? view.capacity : 1;
  if (at.parts.childElementCount !== wanted) refill(at.parts, Array.from({ length: wanted }, () => h("i")));
  const isWhole = wanted !== view.capacity;
  mark(at.parts, "data-whole", isWhole);
  [...at.parts.children].forEach((part, index) => mark(part, "data-taken", !isWhole && index < view.assigned));
  at.parts.firstChild.style.setProperty("--share", isWhole ? view.assigned / view.capacity : 0);
  put(at.taken, `${number(view.assigned)} of ${number(view.capacity)}`);
  mark(at.taken, "data-full", view.assigned >= view.capacity);
}

/** Count. */
export function tickCard(card, now) {
  const { member, works, parts: at } = card;
  const { view } = member;
  const store = storeNow();
  const up = member.isGone ? "" : `there for ${duration(store - view.joined_at)}`;
  put(at.about, [place(view), clean(view.version), up].filter(Boolean).join(" · "));
  works.slice(0, MOST_WORK).forEach((row, index) => put(at.work.children[index].lastChild, duration(row.age(store))));
  put(at.beat, `heard of ${duration(store - view.beat_at)} ago`);
  const left = member.left(now);
  put(at.left, member.isGone ? "" : left || isOnline() ? `${duration(left)} left` : "?");
  fillBar(at.bar, member.ttl && !member.isGone ? left / member.ttl : 0);
  mark(card, "data-late", !member.isGone && left < member.ttl / 4);
}

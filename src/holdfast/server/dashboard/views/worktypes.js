// How much work there is of each type: a card each, which is also a filter.

import { h, keyed, mark, put } from "../lib/dom.js";
import { clean, duration, number } from "../lib/format.js";

const LATE = 60; // seconds that work may be due before that is worth a colour
const PARTS = ["assigned", "offered", "failed"];

/** The strip of cards. `choose(type)` is called with a type, or null for all of them. */
export function typeStrip(choose) {
  const element = h("div", { class: "types", role: "group", "aria-label": "Types of work", hidden: true });
  let items = [];
  let cameAt = 0;
  let chosen = null;

  function make({ type }) {
    const part = (name) => h("i", { class: name });
    const number = (name) => h("span", { class: name });
    return h(
      "button",
      { class: "type-card", click: () => choose(type === chosen ? null : type) },
      h("b"),
      h("span", { class: "share", "aria-hidden": "true" }, PARTS.map(part)),
      h("span", { class: "numbers" }, PARTS.map(number), h("span", { class: "oldest" })),
    );
  }

  function update(card, item) {
    const [name, share, numbers] = card.children;
    put(name, clean(item.type) || "no type");
    const all = PARTS.reduce((sum, part) => sum + item[part], 0);
    PARTS.forEach((part, index) => {
      const bar = share.children[index];
      const grow = all ? (item[part] / all).toFixed(3) : "0";
      if (bar.style.flexGrow !== grow) bar.style.flexGrow = grow;
      mark(bar, "hidden", !item[part]);
      put(numbers.children[index], item[part] ? `${number(item[part])} ${part}` : "");
    });
    mark(card, "aria-pressed", String(item.type === chosen));
  }

  function draw() {
    mark(element, "hidden", !items.length);
    keyed(element, items, (item) => `type ${item.type}`, make, update);
    tick(performance.now());
  }

  function tick(now) {
    items.forEach((item, index) => {
      const oldest = element.children[index].lastChild.lastChild;
      const waits = item.offered ? item.waiting + (item.waiting && (now - cameAt) / 1000) : 0;
      put(oldest, waits >= 1 ? `oldest ${duration(waits)}` : "");
      mark(oldest, "title", waits >= 1 ? "For how long the oldest that is offered has been due" : null);
      mark(oldest, "data-late", waits > LATE);
    });
  }

  return {
    element,
    tick,
    show(found, at) {
      items = [...found].sort((a, b) => (a.type === "") - (b.type === "")); // those without a type come last
      cameAt = at;
      draw();
    },
    pick(type) {
      chosen = type;
      draw();
    },
  };
}

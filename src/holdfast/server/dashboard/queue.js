// The queue of a lock: a picture of how long each waits, and the same in words.

import { h, keyed, mark, put, svg, table } from "./dom.js";
import { clean, duration, number, place } from "./format.js";

const WIDTH = 400;
const HEIGHT = 56;

/** Who waits. `draw(view, cameAt)` shows a new look at the lock, `tick(now)` counts. */
export function queuePanel() {
  const picture = svg("svg", {
    class: "waits",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
  });
  const most = h("span", { class: "muted num" });
  const frame = h("div", { class: "picture" }, picture, most);
  const rows = h("tbody");
  const list = table(rows, ["#", "num"], "Owner", "Host:pid", ["Waiting", "num"]);
  const rest = h("p", { class: "muted" });
  const none = h("p", { class: "muted" }, "Nobody waits.");
  const title = h("span", { class: "count" });
  const element = h(
    "section",
    { class: "panel" },
    h("h2", {}, "Queue", title),
    none,
    frame,
    h("div", { class: "scroll" }, list),
    rest,
  );
  let shown = [];

  return {
    element,
    draw(view, cameAt) {
      shown = view.waiters.map((waiter) => ({ waiter, since: cameAt - waiter.waiting_for * 1000 }));
      put(title, view.waiting ? number(view.waiting) : "");
      mark(none, "hidden", shown.length > 0);
      mark(frame, "hidden", shown.length < 2);
      mark(list, "hidden", !shown.length);
      const hidden = view.waiting - shown.length;
      put(rest, hidden > 0 ? `… and ${number(hidden)} more` : "");
      const keyOf = ({ waiter }, index) => `${index} ${waiter.owner} ${place(waiter)}`;
      keyed(rows, shown, keyOf, makeRow, (row, { waiter }, index) => {
        put(row.children[0], String(index + 1));
        put(row.children[1], clean(waiter.owner));
        put(row.children[2], place(waiter));
      });
      this.tick(performance.now());
    },
    tick(now) {
      const waits = shown.map(({ since }) => (now - since) / 1000);
      waits.forEach((wait, index) => put(rows.children[index].children[3], duration(wait)));
      if (waits.length > 1) drawPicture(picture, most, waits);
    },
  };
}

function makeRow() {
  return h(
    "tr",
    {},
    h("td", { class: "num muted" }),
    h("td", { class: "text" }),
    h("td", { class: "text muted" }),
    h("td", { class: "num" }),
  );
}

function drawPicture(picture, most, waits) {
  const longest = Math.max(...waits, 1);
  const step = WIDTH / Math.max(waits.length, 24);
  while (picture.childNodes.length > waits.length) picture.lastChild.remove();
  waits.forEach((wait, index) => {
    const bar = picture.childNodes[index] ?? picture.appendChild(svg("rect", { rx: 1 }, svg("title")));
    const height = Math.max(1.5, (wait / longest) * (HEIGHT - 2));
    mark(bar, "x", (index * step).toFixed(2));
    mark(bar, "width", (step * 0.64).toFixed(2));
    mark(bar, "y", (HEIGHT - height).toFixed(2));
    mark(bar, "height", height.toFixed(2));
    put(bar.firstChild, `place ${index + 1}: ${duration(wait)}`);
  });
  put(most, `longest ${duration(longest)}`);
  const text = `How long each of the ${waits.length} waits, from the head of the queue: at most ${duration(longest)}`;
  mark(picture, "aria-label", text);
}

// The queue of a lock: a picture of how long each waits, and the same in words.

import { h, keyed, mark, panel, put, svg, table, tableRow } from "../lib/dom.js";
import { clean, duration, number, place } from "../lib/format.js";

const WIDTH = 400;
const HEIGHT = 56;

/** Who waits. `draw(view, cameAt)` shows a new look at the lock, `tick(now)` counts. */
export function queuePanel() {
  const area = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" };
  const picture = svg("svg", { class: "waits", ...area, role: "img" });
  const most = h("span", { class: "muted num" });
  const frame = h("div", { class: "picture" }, picture, most);
  const rows = h("tbody");
  const list = table(rows, ["#", "num"], "Owner", "Host:pid", ["Waiting", "num"]);
  const rest = h("p", { class: "muted" });
  const none = h("p", { class: "muted" }, "Nobody waits.");
  const title = h("span", { class: "count" });
  const element = panel("panel", ["Queue", title], none, frame, h("div", { class: "scroll" }, list), rest);
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
      const make = () => tableRow("num muted", "text", "text muted", "num");
      keyed(rows, shown, keyOf, make, (row, { waiter }, index) => {
        const texts = [String(index + 1), clean(waiter.owner), place(waiter)];
        texts.forEach((text, cell) => put(row.children[cell], text));
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

function drawPicture(picture, most, waits) {
  const longest = Math.max(...waits, 1);
  const step = WIDTH / Math.max(waits.length, 24);
  while (picture.childNodes.length > waits.length) picture.lastChild.remove();
  waits.forEach((wait, index) => {
    const bar = picture.childNodes[index] ?? picture.appendChild(svg("rect", { rx: 1 }, svg("title")));
    const height = Math.max(1.5, (wait / longest) * (HEIGHT - 2));
    const box = { x: index * step, width: step * 0.64, y: HEIGHT - height, height };
    for (const [name, value] of Object.entries(box)) mark(bar, name, value.toFixed(2));
    put(bar.firstChild, `place ${index + 1}: ${duration(wait)}`);
  });
  put(most, `longest ${duration(longest)}`);
  const text = `How long each of the ${waits.length} waits, from the head of the queue: at most ${duration(longest)}`;
  mark(picture, "aria-label", text);
}

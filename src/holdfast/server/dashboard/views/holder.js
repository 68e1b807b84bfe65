// Who has a lock, since when, under which token, and for how long yet.

import { fillBar, h, keyed, mark, panel, put, table, tableRow } from "../lib/dom.js";
import { fleet } from "../lib/fleet.js";
import { clean, count, duration, number, place } from "../lib/format.js";
import { isOnline, may } from "../lib/state.js";
import { breakDialog } from "./lockdialogs.js";

const NOTES = {
  held: "until the lease ends, unless it is renewed.",
  handed: "to claim it: it was handed over, and its new holder has not answered yet.",
  shut: "until the lock opens: the lease is over, and its terms keep the lock shut (at least, lock-delay).",
  expired: "The lease is over. That takes effect when somebody asks for the lock, or with the next sweep.",
  free: "",
};

/** Return all who have a lock, as far as they are told. */
export const holdersOf = (view) => (view.holders.length ? view.holders : view.holder ? [view.holder] : []);

/** The panel. `draw(row)` shows a new look at the lock, `tick(row, now)` counts. */
export function holderPanel() {
  const title = h("span", {}, "Holder");
  const howMany = h("span", { class: "count" });
  const left = h("div", { class: "big" });
  const bar = h("i");
  const note = h("div", { class: "muted" });
  const lease = h("div", { class: "lease-left" }, left, h("i", { class: "bar" }, bar), note);
  const nobody = h("p", { class: "muted" });
  const lines = h("tbody");
  const list = table(lines, "Owner", "Host:pid", ["Held for", "num"], ["Token", "token"], "");
  const scroll = h("div", { class: "scroll" }, list);
  const element = panel("panel", [title, howMany], lease, nobody, scroll);

  function draw({ view, cameAt }) {
    const holding = holdersOf(view);
    put(title, holding.length > 1 ? "Holders" : "Holder");
    put(howMany, holding.length > 1 ? number(Math.max(holding.length, view.permits ? view.holds : 0)) : "");
    mark(lease, "hidden", !holding.length);
    mark(list, "hidden", !holding.length);
    mark(nobody, "hidden", holding.length > 0);
    put(nobody, `Nobody holds it.${view.token ? ` The last lease had the token ${view.token}.` : ""}`);
    const canBreak = holding.length > 1 && may("break", view.key);
    const make = (holder) => makeLine(() => breakDialog(view.key, holder.token));
    keyed(lines, holding, (holder) => holder.token, make, (line, holder) => {
      const [owner, where, , token, act] = line.children;
      const entered = holding.length === 1 && view.holds > 1 && count(view.holds, "hold");
      const permits = holder.take > 1 && count(holder.take, "permit");
      put(owner.firstChild, fleet.nameOf(holder.owner));
      mark(owner, "title", clean(holder.owner));
      put(owner.lastChild, [permits, entered, !holder.claimed && "not claimed yet"].filter(Boolean).join(", "));
      put(where, place(holder));
      put(token, String(holder.token));
      line.since = cameAt - holder.held_for * 1000;
      mark(act.firstChild, "hidden", !canBreak);
    });
  }

  function tick(row, now) {
    const isHeld = row.view.state === "held";
    const seconds = row.left(now);
    for (const line of lines.children) put(line.children[2], duration((now - line.since) / 1000));
    fillBar(bar, isHeld ? seconds / row.span : 0);
    put(left, isHeld && !seconds && !isOnline() ? "?" : duration(isHeld ? seconds : 0));
    put(note, NOTES[row.state]);
    mark(lease, "data-late", row.view.state === "expired" || (isHeld && row.isLate(now)));
  }

  return { element, draw, tick };
}

function makeLine(breakIt) {
  const line = tableRow("text", "text muted", "num", "token", "num");
  line.firstChild.append(h("span"), " ", h("span", { class: "muted note" }));
  line.lastChild.append(h("button", { class: "small danger", click: breakIt }, "Break…"));
  return line;
}

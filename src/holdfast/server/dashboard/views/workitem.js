// One piece of work: how it stands, who has it, what it was offered with, what came of it, and what happened to it.

import { lockPath, workPath } from "../lib/api.js";
import { factList, h, mark, panel, put } from "../lib/dom.js";
import { fleet } from "../lib/fleet.js";
import { clean, lockLink, moment, pretty } from "../lib/format.js";
import { may } from "../lib/state.js";
import { holderPanel } from "./holder.js";
import { getIfAny, ItemView } from "./item.js";
import { breakDialog } from "./lockdialogs.js";
import { Row } from "./lockset.js";
import { forgetDialog, offerAgainDialog } from "./workdialogs.js";
import { WORK_STATES } from "./workrow.js";
import { WorkRow } from "./workset.js";

const DUE = { offered: "To be claimed from", assigned: "Looked at again", completed: "Completed", failed: "Failed" };
const RESULT = { completed: "Result", failed: "Error" };
const WHEN = { offered: "due for", assigned: "for", later: "to be claimed" };

let lock = null; // its lock, while it is assigned

const button = (text, key, style, click) => h("button", { class: style, click, "aria-keyshortcuts": key }, text);
const againButton = button("Offer again…", "o", null, () => offerAgainDialog(workView.key));
const forgetButton = button("Forget…", "f", "danger", () => forgetDialog(workView.key));
const breakButton = button("Break…", "b", "danger", () => breakDialog(workView.key, workView.row.view.token));
const toLock = h("a", { class: "button" }, "Its lock");
const when = h("span", { class: "muted" });
const [facts, drawFacts] = factList();
const data = h("pre", { class: "code", tabindex: 0 });
const resultTitle = h("span");
const result = h("pre", { class: "code", tabindex: 0 });
const resultPanel = panel("panel", resultTitle, result);
const lease = holderPanel();

function factsOf(work) {
  const who = work.instance && fleet.nameOf(work.instance);
  const link = `#/instances?${new URLSearchParams({ show: "all", q: work.instance })}`;
  const isAt = work.state === "assigned";
  return {
    [isAt ? "Instance" : "Last instance"]: who ? h("a", { href: link, title: clean(work.instance) }, who) : "none yet",
    Tries: work.max_tries ? `${work.tries} of ${work.max_tries}` : `${work.tries}, of any number`,
    Offered: moment(work.offered_at),
    [isAt ? "Assigned" : "Last assigned"]: work.assigned_at ? moment(work.assigned_at) : "never",
    [DUE[work.state]]: moment(work.due_at),
    Token: work.token ? String(work.token) : "none yet",
  };
}

export const workView = new ItemView({
  noun: "work",
  label: "One piece of work",
  list: "Work",
  command: "holdfast work show",
  missing: ["There is no such work", "It was never offered, was forgotten, or ended long ago."],
  states: WORK_STATES,
  beside: [when],
  buttons: [toLock, againButton, forgetButton, breakButton],
  panels: [
    h("div", { class: "stack" }, panel("panel", "Work", facts), resultPanel),
    h("div", { class: "stack" }, lease.element, panel("panel", "Data", data)),
  ],

  async find(key) {
    const [work] = await Promise.all([getIfAny(workPath(key)), fleet.load()]);
    return { work, held: work?.state === "assigned" ? await getIfAny(lockPath(key)) : null };
  },

  draw({ work, held }) {
    if (!work) return null;
    if (!this.row) lock = null;
    this.row = (this.row ?? new WorkRow(work.key)).take(work, work.cameAt, false);
    const isOurs = held?.holder?.token === work.token && held.state === "held";
    lock = isOurs ? (lock ?? new Row(work.key)).take(held, held.cameAt, false) : null;
    for (const element of [when, toLock]) mark(element, "hidden", false);
    toLock.href = lockLink(work.key);
    mark(againButton, "hidden", !this.row.isOver || !may("acquire", work.key));
    mark(forgetButton, "hidden", work.state === "assigned" || !may("break", work.key));
    mark(breakButton, "hidden", !isOurs || !may("break", work.key));
    mark(lease.element, "hidden", !lock);
    if (lock) lease.draw(lock);
    put(data, pretty(work.data));
    mark(resultPanel, "hidden", !work.text);
    put(resultTitle, RESULT[work.state] ?? "Said last");
    mark(result, "data-failed", work.state === "failed");
    put(result, work.state === "completed" ? pretty(work.text) : clean(work.text));
    drawFacts(factsOf(work));
    return isOurs ? [held.holder] : [];
  },

  tick(now) {
    put(when, `${WHEN[this.row.state] ?? ""} ${this.row.when}`.trim());
    if (lock) lease.tick(lock, now);
  },
});

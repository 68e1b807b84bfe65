// What a person can do to a lock: take it away from its holder, and change how many permits a semaphore has. Each says
// before what will happen. With a break the token that was seen is sent along: whoever has the lock by then keeps it.

import { get, lockPath, post } from "../lib/api.js";
import { effects, field, isOpen, look, outcome, question, strong, tell } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { clean, count, duration, number } from "../lib/format.js";
import { Refresher } from "../lib/refresh.js";
import { may, state } from "../lib/state.js";
import { stored } from "../lib/token.js";

const NAME = "holdfast.name";
const NOBODY = "dashboard";
const LONGEST = 500; // characters of a reason
const EXAMPLE = "Why? For example: worker-7 hangs, see the incident";

/** Return the name that the server knows us by; empty if it asks nobody. */
const principal = () => state.server?.principal?.name ?? "";

/** Return a field for one's name, where the server does not know it, and a function that returns what to send. */
function signature() {
  if (principal()) return [null, () => undefined];
  const value = stored(() => localStorage.getItem(NAME));
  const input = h("input", { type: "text", maxlength: 60, value, placeholder: NOBODY, autocomplete: "name" });
  const by = () => {
    const name = input.value.trim();
    stored(() => localStorage.setItem(NAME, name));
    return name || NOBODY;
  };
  return [field("Your name", input), by];
}

const holding = (view) => (view.holders.length ? view.holders : view.holder && view.holds ? [view.holder] : []);

/** Ask whether to break a lock: the lease of `token`, or of whoever holds it now. */
export async function breakDialog(key, token = null) {
  const view = await look(lockPath(key), key, "break", "It cannot be broken");
  if (!view) return;
  const holders = holding(view);
  const holder = token === null ? holders[0] : holders.find((each) => each.token === token);
  if (holder) askToBreak(view, holder, holders);
  else tell("Nothing to break", strong(key), " is no longer held by the one you saw.");
}

function askToBreak(view, holder, holders) {
  const { key } = view;
  const reason = h("textarea", { rows: 2, required: true, maxlength: LONGEST, autofocus: true, placeholder: EXAMPLE });
  reason.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) reason.form.requestSubmit();
  });
  const [name, by] = signature();
  // While the question stands, the lock may change hands.
  const lookAgain = async () => {
    const now = holding(await get(lockPath(key)));
    if (now.some((each) => each.token === holder.token)) return;
    say(`${clean(holder.owner)} does not hold it any more. Confirming will do nothing.`);
  };
  const watch = new Refresher(lookAgain, () => {});
  const say = question({
    title: "Force-release this lock?",
    subject: key,
    content: [effects(consequences(view, holder, holders)), field("Reason", reason), name],
    go: h("button", { class: "danger solid", type: "submit" }, "Force-release"),
    send: () => (reason.value.trim() ? breakLock(key, holder, reason.value.trim(), by()) : reason.focus()),
    unknown: "It may or may not have been released. Look at its history before you try again",
    closed: () => watch.stop(),
  });
  watch.start();
}

/** Return what will happen, line by line. */
function consequences(view, holder, holders) {
  const others = holders.length - 1;
  const permits = holder.take > 1 ? ` with ${number(holder.take)} permits` : "";
  const lines = [
    [
      strong(holder.owner),
      ` on ${clean(holder.host) || "an unknown host"}, pid ${holder.pid}, loses it. `,
      `It has held it for ${duration(holder.held_for)} under token ${holder.token}${permits}.`,
    ],
    [
      "It is told at once if it listens, else at its next renewal. What it is doing is not stopped: ",
      "only a fence or a check of the token keeps its late writes out.",
    ],
  ];
  if (view.operation) lines.push(["This is an operation: the attempt counts as failed."]);
  lines.push(next(view, others));
  if (others > 0) {
    lines.push([`${count(others, "other holder")} ${others === 1 ? "keeps its lease" : "keep their leases"}.`]);
  }
  lines.push(["If the lease changes hands before you confirm, nothing is done."]);
  const name = principal() ? strong(principal()) : "your name";
  lines.push(["The reason and ", name, " appear in the lock's history, and the holder is told."]);
  return lines;
}

function next(view, others) {
  const [first] = view.waiters;
  if (!first) return [others > 0 ? "Nobody waits." : "Nobody waits: it will be free."];
  const gets =
    view.mode === "exclusive" ? "gets it next." : "is next in line, and gets it if it fits beside the others.";
  const after = view.waiting > 1 ? ` The other ${number(view.waiting - 1)} go on waiting in their order.` : "";
  return [strong(first.owner), `, first of ${number(view.waiting)} waiting, ${gets}${after}`];
}

async function breakLock(key, holder, reason, by) {
  try {
    const broken = await post(lockPath(key, "/break"), { reason, by, token: holder.token });
    const after = broken.next ? ["It was handed to ", strong(broken.next), "."] : ["Nobody waited who could have it."];
    outcome("Released by force", [strong(broken.holder.owner), " no longer holds ", strong(key), ". ", ...after], key);
  } catch (error) {
    if (error.status !== 409) throw error;
    outcome("Nothing was done", [strong(holder.owner), " did not hold it any more: ", clean(error.message), "."], key);
  }
}

/** Ask for another number of permits. */
export function resizeDialog({ key, permits: before }) {
  if (isOpen() || !may("admin", key)) return;
  const permits = h("input", { type: "number", min: 1, step: 1, required: true, value: before, autofocus: true });
  const [name, by] = signature();
  question({
    title: "Resize this semaphore",
    subject: key,
    content: [
      h("p", {}, `It has ${count(before, "permit")}. With more, whoever is next may come in at once. `),
      h("p", {}, "With fewer nobody loses any, but whoever waits for more than there are is refused."),
      field("Permits", permits),
      name,
    ],
    go: h("button", { class: "solid", type: "submit" }, "Resize"),
    async send() {
      const resized = await post(lockPath(key, "/resize"), { permits: Number(permits.value), by: by() });
      const now = ` has ${count(resized.permits, "permit")} now; before, ${number(resized.before)}.`;
      outcome("Resized", [strong(key), now], key);
    },
  });
}

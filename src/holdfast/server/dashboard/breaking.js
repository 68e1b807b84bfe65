// Taking a lock away from its holder. It says what will happen before, and what has happened after. The token that was
// seen is sent along: whoever has the lock by then keeps it.

import { get, isAskable, lockPath, post, Problem } from "./api.js";
import { actions, closeButton, isOpen, notice, open, outcome, strong } from "./dialog.js";
import { h, mark } from "./dom.js";
import { clean, count, duration, number } from "./format.js";
import { Refresher } from "./refresh.js";
import { principal, signature } from "./signature.js";
import { may } from "./state.js";

const LONGEST = 500; // characters of a reason
const EXAMPLE = "Why? For example: worker-7 hangs, see the incident";
const UNKNOWN = "It may or may not have been released. Look at its history before you try again";

const holding = (view) => (view.holders.length ? view.holders : view.holder && view.holds ? [view.holder] : []);

/** Ask whether to break a lock: the lease of `token`, or of whoever holds it now. */
export async function breakDialog(key, token = null) {
  if (isOpen() || !may("break", key) || !isAskable(key)) return;
  try {
    const view = await get(lockPath(key));
    const holders = holding(view);
    const holder = token === null ? holders[0] : holders.find((each) => each.token === token);
    if (isOpen()) return;
    if (holder) ask(view, holder, holders);
    else tell("Nothing to break", [strong(key), " is no longer held by the one you saw."]);
  } catch (error) {
    if (error instanceof Problem) tell("It cannot be broken", [clean(error.message)]);
  }
}

function tell(title, text) {
  open(title, [h("p", {}, ...text), actions(closeButton("Close", { autofocus: true }))]);
}

function ask(view, holder, holders) {
  const reason = h("textarea", { rows: 2, required: true, maxlength: LONGEST, autofocus: true, placeholder: EXAMPLE });
  const { field, by } = signature();
  const note = notice();
  const go = h("button", { class: "danger solid", type: "submit" }, "Force-release");
  const submit = async (event) => {
    event.preventDefault();
    if (!reason.value.trim()) return reason.focus();
    mark(go, "disabled", true);
    await send(view.key, holder, reason.value.trim(), by(), note);
    mark(go, "disabled", false);
  };
  const lines = effects(view, holder, holders).map((line) => h("li", {}, line));
  const form = h(
    "form",
    { submit },
    h("ul", { class: "effects" }, lines),
    h("label", { class: "field" }, h("span", {}, "Reason"), reason),
    field,
    note.element,
    actions(closeButton("Cancel"), go),
  );
  reason.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  // While the question stands, the lock may change hands.
  const watch = new Refresher(
    async () => {
      const now = holding(await get(lockPath(view.key)));
      if (!now.some((each) => each.token === holder.token)) {
        note.say(`${clean(holder.owner)} does not hold it any more. Confirming will do nothing.`);
      }
    },
    () => {},
  );
  open("Force-release this lock?", [h("p", { class: "subject" }, clean(view.key)), form], () => watch.stop());
  watch.start();
}

/** Return what will happen, line by line. */
function effects(view, holder, holders) {
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

async function send(key, holder, reason, by, note) {
  try {
    const broken = await post(lockPath(key, "/break"), { reason, by, token: holder.token });
    const after = broken.next ? ["It was handed to ", strong(broken.next), "."] : ["Nobody waited who could have it."];
    outcome("Released by force", [strong(broken.holder.owner), " no longer holds ", strong(key), ". ", ...after], key);
  } catch (error) {
    if (error.status === 409) {
      const why = [strong(holder.owner), " did not hold it any more: ", clean(error.message), "."];
      outcome("Nothing was done", why, key);
    } else note.say(error instanceof Problem ? error.message : `${error.message}. ${UNKNOWN}`);
  }
}

// What a person can do to work: offer it, offer it again, forget it. Each says before what will happen.

import { post, remove, workPath } from "../lib/api.js";
import { effects, field, isOpen, look, outcome, question, strong, tell } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { pretty, workLink } from "../lib/format.js";
import { fleet } from "../lib/fleet.js";
import { may } from "../lib/state.js";

const MISSING = "There is no such work";
const UNKNOWN = "It may or may not have been done. Look before you try again";

/** Ask for a new piece of work. */
export function offerDialog() {
  if (isOpen() || !may("acquire")) return;
  const plain = { autocomplete: "off", spellcheck: "false", autofocus: true };
  const key = h("input", { type: "text", required: true, maxlength: 255, placeholder: "report:2026-11", ...plain });
  const lines = [
    "The type of work is its key up to the first colon; an instance that claims this type gets it.",
    "If it is known already, nothing is done.",
  ];
  const given = { keyOf: () => key.value.trim(), data: "null", tries: 0, again: false };
  ask("Offer work", null, [effects(lines), field("Key", key)], given);
}

/** Ask whether to offer work again that is over: with the data it had, or other. */
export async function offerAgainDialog(key) {
  const work = await look(workPath(key), key, "acquire", MISSING);
  if (!work) return;
  if (work.state !== "completed" && work.state !== "failed") {
    tell("Nothing to offer again", strong(key), ` is ${work.state} already.`);
    return;
  }
  const over = work.state === "failed" ? "It failed" : "It completed";
  const lines = [
    `${over} after ${work.tries} ${work.tries === 1 ? "try" : "tries"}. It will be as new: its tries are counted from 0.`,
    "Its result or error is dropped. Its history stays.",
  ];
  const given = { keyOf: () => key, data: work.data, tries: work.max_tries, again: true };
  ask("Offer this work again?", key, [effects(lines)], given);
}

function ask(title, subject, content, { keyOf, data: before, tries: most, again }) {
  const data = h("textarea", { class: "code", spellcheck: "false" });
  data.value = pretty(before);
  data.rows = Math.min(10, Math.max(3, data.value.split("\n").length));
  const tries = h("input", { type: "number", min: 0, step: 1, value: most });
  const delay = h("input", { type: "number", min: 0, step: "any", value: 0 });
  const limits = [field("Tries, at most (0: any number)", tries), field("Not before, in seconds", delay)];
  question({
    title,
    subject,
    content: [...content, field("Data, as JSON", data), h("div", { class: "fields" }, limits)],
    go: h("button", { class: "solid", type: "submit", autofocus: again }, again ? "Offer again" : "Offer"),
    async send(say) {
      const work = { key: keyOf(), max_tries: Number(tries.value), delay: Number(delay.value) };
      try {
        work.data = JSON.stringify(JSON.parse(data.value));
      } catch {
        say("The data is no JSON. A text needs its own quotes; null is nothing.");
        return data.focus();
      }
      const { states, new: news } = await post("/v1/work", { works: [work], again });
      const text = news[0] ? " is offered." : ` is ${states[0]} already.`;
      outcome(news[0] ? "Offered" : "Nothing was done", [strong(work.key), text], work.key, workLink(work.key));
    },
    unknown: UNKNOWN,
  });
}

/** Ask whether to forget a piece of work. */
export async function forgetDialog(key) {
  const work = await look(workPath(key), key, "break", MISSING);
  if (!work) return;
  if (work.state === "assigned") {
    const who = strong(fleet.nameOf(work.instance));
    tell("It cannot be forgotten now", strong(key), " is assigned to ", who, ". Wait, or break its lock first.");
    return;
  }
  const lines = [
    `It is ${work.state}. Its data and its result or error are lost.`,
    work.state === "offered" ? "Nobody will do it." : "Whoever offers it afterwards has it done once more.",
    "What its history says of it stays.",
  ];
  question({
    title: "Forget this work?",
    subject: key,
    content: [effects(lines)],
    go: h("button", { class: "danger solid", autofocus: true }, "Forget"),
    async send() {
      await remove(workPath(key));
      outcome("Forgotten", [strong(key), " is forgotten."], key, null);
    },
    unknown: UNKNOWN,
  });
}

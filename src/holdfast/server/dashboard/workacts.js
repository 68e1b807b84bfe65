// What a person can do to work: offer it, offer it again, forget it. Each says before what will happen.

import { get, isAskable, post, Problem, remove, workPath } from "./api.js";
import { actions, closeButton, isOpen, notice, open, outcome, strong } from "./dialog.js";
import { h, mark } from "./dom.js";
import { clean, pretty, workLink } from "./format.js";
import { fleet } from "./fleet.js";
import { may } from "./state.js";

const UNKNOWN = "It may or may not have been done. Look before you try again";

const field = (text, input) => h("label", { class: "field" }, h("span", {}, text), input);
const told = (error) => (error instanceof Problem ? error.message : `${error.message}. ${UNKNOWN}`);

/** Ask for a new piece of work. */
export function offerDialog(prefix = "") {
  if (isOpen() || !may("acquire")) return;
  const key = h("input", {
    type: "text",
    required: true,
    maxlength: 255,
    value: prefix,
    placeholder: "report:2026-11",
    autocomplete: "off",
    spellcheck: "false",
    autofocus: true,
  });
  const lines = [
    "The type of work is its key up to the first colon; an instance that claims this type gets it.",
    "If it is known already, nothing is done.",
  ];
  ask("Offer work", null, lines, { key: () => key.value.trim(), data: "null", tries: 0, again: false }, [
    field("Key", key),
  ]);
}

/** Ask whether to offer work again that is over: with the data it had, or other. */
export async function offerAgainDialog(key) {
  const work = await look(key, "acquire");
  if (!work) return;
  if (work.state !== "completed" && work.state !== "failed") {
    tell("Nothing to offer again", [strong(key), ` is ${work.state} already.`]);
    return;
  }
  const over = work.state === "failed" ? "It failed" : "It completed";
  const lines = [
    `${over} after ${work.tries} ${work.tries === 1 ? "try" : "tries"}. It will be as new: its tries are counted from 0.`,
    "Its result or error is dropped. Its history stays.",
  ];
  ask("Offer this work again?", key, lines, { key: () => key, data: work.data, tries: work.max_tries, again: true });
}

function ask(title, subject, lines, given, more = []) {
  const data = h("textarea", { rows: 3, class: "code", spellcheck: "false" });
  data.value = pretty(given.data);
  data.rows = Math.min(10, Math.max(3, data.value.split("\n").length));
  const tries = h("input", { type: "number", min: 0, step: 1, value: given.tries });
  const delay = h("input", { type: "number", min: 0, step: "any", value: 0 });
  const note = notice();
  const go = h("button", { class: "solid", type: "submit", autofocus: given.again }, given.again ? "Offer again" : "Offer");
  const submit = async (event) => {
    event.preventDefault();
    const work = { key: given.key(), max_tries: Number(tries.value), delay: Number(delay.value) };
    try {
      work.data = JSON.stringify(JSON.parse(data.value));
    } catch {
      note.say("The data is no JSON. A text needs its own quotes; null is nothing.");
      return data.focus();
    }
    mark(go, "disabled", true);
    await send(work, given.again, note);
    mark(go, "disabled", false);
  };
  const form = h(
    "form",
    { submit },
    h(
      "ul",
      { class: "effects" },
      lines.map((line) => h("li", {}, line)),
    ),
    ...more,
    field("Data, as JSON", data),
    h(
      "div",
      { class: "fields" },
      field("Tries, at most (0: any number)", tries),
      field("Not before, in seconds", delay),
    ),
    note.element,
    actions(closeButton("Cancel"), go),
  );
  open(title, [subject && h("p", { class: "subject" }, clean(subject)), form].filter(Boolean));
}

async function send(work, again, note) {
  try {
    const { states, new: news } = await post("/v1/work", { works: [work], again });
    const text = news[0] ? [strong(work.key), " is offered."] : [strong(work.key), ` is ${states[0]} already.`];
    outcome(news[0] ? "Offered" : "Nothing was done", text, work.key, workLink(work.key));
  } catch (error) {
    note.say(told(error));
  }
}

/** Ask whether to forget a piece of work. */
export async function forgetDialog(key) {
  const work = await look(key, "break");
  if (!work) return;
  if (work.state === "assigned") {
    const who = strong(fleet.nameOf(work.instance));
    tell("It cannot be forgotten now", [strong(key), " is assigned to ", who, ". Wait, or break its lock first."]);
    return;
  }
  const note = notice();
  const go = h("button", { class: "danger solid", autofocus: true }, "Forget");
  go.addEventListener("click", async () => {
    mark(go, "disabled", true);
    try {
      await remove(workPath(key));
      outcome("Forgotten", [strong(key), " is forgotten."], key, null);
    } catch (error) {
      note.say(told(error));
    }
    mark(go, "disabled", false);
  });
  const lines = [
    `It is ${work.state}. Its data and its result or error are lost.`,
    work.state === "offered" ? "Nobody will do it." : "Whoever offers it afterwards has it done once more.",
    "What its history says of it stays.",
  ];
  open("Forget this work?", [
    h("p", { class: "subject" }, clean(key)),
    h(
      "ul",
      { class: "effects" },
      lines.map((line) => h("li", {}, line)),
    ),
    note.element,
    actions(closeButton("Cancel"), go),
  ]);
}

async function look(key, verb) {
  if (isOpen() || !may(verb, key) || !isAskable(key)) return null;
  try {
    const work = await get(workPath(key));
    return isOpen() ? null : work;
  } catch (error) {
    if (error instanceof Problem) tell("There is no such work", [clean(error.message)]);
    return null;
  }
}

function tell(title, text) {
  open(title, [h("p", {}, ...text), actions(closeButton("Close", { autofocus: true }))]);
}

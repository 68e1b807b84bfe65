// Dialogs: one at a time, closed by Esc, with the focus where it belongs afterwards.

import { get, isAskable, Problem } from "./api.js";
import { h, mark, put, refill } from "./dom.js";
import { clean, lockLink } from "./format.js";
import { emit, may } from "./state.js";

const host = h("dialog", { "aria-labelledby": "dialog-title" });
document.body.append(host);
let before = null;
let onClose = null;

host.addEventListener("close", () => {
  refill(host);
  onClose?.();
  onClose = null;
  before?.focus?.({ preventScroll: true });
});
// A click beside a dialog closes it, unless something may have been typed there.
host.addEventListener("click", (event) => {
  if (event.target === host && !host.querySelector("input, textarea")) host.close();
});

export const isOpen = () => host.open;
export const close = () => host.open && host.close();

/** Show a dialog with this content, in place of what it showed before. */
export function open(title, content, closed = null) {
  if (!host.open) before = document.activeElement;
  onClose?.();
  onClose = closed;
  refill(host, h("h2", { id: "dialog-title" }, title), ...content);
  if (!host.open) host.showModal();
  host.querySelector("[autofocus]")?.focus();
}

const actions = (...buttons) => h("div", { class: "actions" }, ...buttons);

const closeButton = (text, more) => h("button", { type: "button", click: close, ...more }, text);

/** Show something that asks nothing; `button` stands beside the one that closes it. */
export function inform(title, content, button = null) {
  open(title, [...content, actions(button, closeButton("Close", { autofocus: true }))]);
}

/** Say something in a sentence. */
export const tell = (title, ...text) => inform(title, [h("p", {}, ...text)]);

/** Return what is at `path`, to ask about it: null if we may not, something else is asked, or `missing` is told. */
export async function look(path, key, verb, missing) {
  if (isOpen() || !may(verb, key) || !isAskable(key)) return null;
  try {
    const found = await get(path);
    return isOpen() ? null : found;
  } catch (error) {
    if (error instanceof Problem) tell(missing, clean(error.message));
    return null;
  }
}

export const strong = (text) => h("b", {}, clean(text));
export const field = (text, input) => h("label", { class: "field" }, h("span", {}, text), input);
export const effects = (lines) => h("ul", { class: "effects" }, lines.map((line) => h("li", {}, line)));

/** Ask before something is done to `subject`: `content`, and a button `go` that does it.
 *
 * `send(say)` does it, and may say what is wrong instead; so does what it throws. Without an answer from the server
 * `unknown` says what may have happened. Return how to say something while the question stands. */
export function question({ title, subject, content, go, send, unknown, closed }) {
  const note = h("p", { class: "notice", role: "alert", hidden: true });
  const say = (text) => {
    put(note, clean(text));
    mark(note, "hidden", false);
  };
  const submit = async (event) => {
    event.preventDefault();
    mark(go, "disabled", true);
    try {
      await send(say);
    } catch (error) {
      say(unknown && !(error instanceof Problem) ? `${error.message}. ${unknown}` : error.message);
    }
    mark(go, "disabled", false);
    if (document.activeElement === document.body) go.focus(); // which it lost while it was disabled
  };
  const form = h("form", { submit }, ...content, note, actions(closeButton("Cancel"), go));
  open(title, [subject && h("p", { class: "subject" }, clean(subject)), form], closed);
  return say;
}

/** Say what has been done to a lock, or to something with a page of its own. */
export function outcome(title, text, key, page = lockLink(key)) {
  emit("acted", key);
  const link = page && h("a", { class: "button", href: page, click: close }, "Its history");
  inform(title, [h("p", { role: "status", class: "outcome" }, ...text)], link);
}

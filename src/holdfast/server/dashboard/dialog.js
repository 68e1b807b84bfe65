// Dialogs: one at a time, closed by Esc, with the focus where it belongs afterwards.

import { h, mark, put, refill } from "./dom.js";
import { clean, lockLink } from "./format.js";
import { emit } from "./state.js";

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
host.addEventListener("click", (event) => event.target === host && !host.querySelector("form") && host.close());

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

/** Return the row of buttons at the end of a dialog. */
export function actions(...buttons) {
  return h("div", { class: "actions" }, ...buttons);
}

export function closeButton(text = "Close", more = {}) {
  return h("button", { type: "button", click: close, ...more }, text);
}

export const strong = (text) => h("b", {}, clean(text));

/** A line that says what is wrong, once something is. */
export function notice() {
  const element = h("p", { class: "notice", role: "alert", hidden: true });
  const say = (text) => {
    put(element, clean(text));
    mark(element, "hidden", false);
  };
  return { element, say };
}

/** Say what has been done to a lock, or to something with a page of its own. */
export function outcome(title, text, key, page = lockLink(key)) {
  emit("acted", key);
  const link = page && h("a", { class: "button", href: page, click: close }, "Its history");
  const told = h("p", { role: "status", class: "outcome" }, ...text);
  open(title, [told, actions(link, closeButton("Close", { autofocus: true }))]);
}

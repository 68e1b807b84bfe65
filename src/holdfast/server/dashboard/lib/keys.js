// The keyboard: one table of keys, which the help shows, and what is not in it goes to the view that is open.

import { inform, isOpen } from "./dialog.js";
import { h } from "./dom.js";

const VIEWS = ["locks", "work", "instances", "events", "server"];
const HELP = [
  [["/"], "search"],
  [["j", "k", "↓", "↑"], "move through the list"],
  [["Enter"], "open what is selected"],
  [["Esc"], "back; or clear the filters"],
  [["b"], "break the selected lock, or that of work: it asks first"],
  [["o"], "offer work; or that again which is selected and over"],
  [["f"], "forget the selected work: it asks first"],
  [["p"], "pause the event stream"],
  [["1", "2", "3", "4", "5"], "locks, work, instances, events, server"],
  [["t"], "light or dark"],
  [["?"], "this help"],
];

/** Show all keys. */
export function helpDialog() {
  if (isOpen()) return;
  const line = ([keys, what]) => h("tr", {}, h("td", {}, keys.map((key) => h("kbd", {}, key))), h("td", {}, what));
  inform("Keyboard", [h("table", { class: "keys" }, h("tbody", {}, HELP.map(line)))]);
}

/** Listen. `current()` is the view that is open; `go(name)` opens another. */
export function listen(current, go) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isOpen()) return;
    const view = current();
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
    // A field of a dialog that was closed just now has the focus for a moment yet.
    if (typing && !typing.closest("dialog:not([open])")) {
      if (typed(event, typing, view)) event.preventDefault();
      return;
    }
    if (event.key === "Enter" && event.target.closest("a, button")) return; // they do what they are for
    if (pressed(event.key, view, go)) event.preventDefault();
  });
}

/** In a search field, Esc and the arrows still work. */
function typed(event, field, view) {
  if (field.type !== "search") return event.key === "Escape" && (field.blur(), true);
  if (event.key === "Escape") {
    if (field.value) view.pressed("Escape");
    else field.blur();
    return true;
  }
  if (event.key === "Enter" || event.key === "ArrowDown") {
    field.blur();
    return view.pressed("ArrowDown") ?? true;
  }
  return false;
}

function pressed(key, view, go) {
  const search = view?.search?.();
  if (key === "?") helpDialog();
  else if (key === "t") window.toggleTheme();
  else if (/^[1-5]$/.test(key)) go(VIEWS[Number(key) - 1]);
  else if (key === "/" && search) {
    search.focus();
    search.select();
  } else return view?.pressed(key) ?? false;
  return true;
}

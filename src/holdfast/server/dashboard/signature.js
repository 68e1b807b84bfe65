// In whose name something is done. With authentication the server knows; without, people may say their name.

import { h } from "./dom.js";
import { state } from "./state.js";

const NAME = "holdfast.name";
const NOBODY = "dashboard";

/** Return the name that the server knows us by; empty if it asks nobody. */
export const principal = () => state.server?.principal?.name ?? "";

function remembered() {
  try {
    return localStorage.getItem(NAME) ?? "";
  } catch {
    return "";
  }
}

/** A field for one's name, where one is needed: `field` to show, `by()` to send. */
export function signature() {
  if (principal()) return { field: null, by: () => undefined };
  const input = h("input", {
    type: "text",
    maxlength: 60,
    value: remembered(),
    placeholder: NOBODY,
    autocomplete: "name",
  });
  const by = () => {
    const name = input.value.trim();
    try {
      localStorage.setItem(NAME, name);
    } catch {
      // It is asked for again, then.
    }
    return name || NOBODY;
  };
  return { field: h("label", { class: "field" }, h("span", {}, "Your name"), input), by };
}

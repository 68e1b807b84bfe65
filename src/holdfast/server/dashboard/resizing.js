// Changing how many permits a semaphore has.

import { lockPath, post } from "./api.js";
import { actions, closeButton, isOpen, notice, open, outcome, strong } from "./dialog.js";
import { h } from "./dom.js";
import { clean, count, number } from "./format.js";
import { may } from "./state.js";
import { signature } from "./signature.js";

/** Ask for another number of permits. */
export function resizeDialog(view) {
  if (isOpen() || !may("admin", view.key)) return;
  const permits = h("input", { type: "number", min: 1, step: 1, required: true, value: view.permits, autofocus: true });
  const { field, by } = signature();
  const note = notice();
  const submit = async (event) => {
    event.preventDefault();
    try {
      const resized = await post(lockPath(view.key, "/resize"), { permits: Number(permits.value), by: by() });
      const now = ` has ${count(resized.permits, "permit")} now; before, ${number(resized.before)}.`;
      outcome("Resized", [strong(view.key), now], view.key);
    } catch (error) {
      note.say(error.message);
    }
  };
  open("Resize this semaphore", [
    h("p", { class: "subject" }, clean(view.key)),
    h(
      "form",
      { submit },
      h("p", {}, `It has ${count(view.permits, "permit")}. With more, whoever is next may come in at once. `),
      h("p", {}, "With fewer nobody loses any, but whoever waits for more than there are is refused."),
      h("label", { class: "field" }, h("span", {}, "Permits"), permits),
      field,
      note.element,
      actions(closeButton("Cancel"), h("button", { class: "solid", type: "submit" }, "Resize")),
    ),
  ]);
}

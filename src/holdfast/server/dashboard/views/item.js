// The page of one lock or one piece of work: its name, how it stands, what can be done to it, and what happened to it.

import { get, isAskable, lockPath, Problem, query } from "../lib/api.js";
import { h, label, mark, put, refill, say } from "../lib/dom.js";
import { clean } from "../lib/format.js";
import { Refresher } from "../lib/refresh.js";
import { isOnline, on, storeNow } from "../lib/state.js";
import { historyPanel } from "./history.js";

/** Ask for something that need not exist: then it is null. */
export const getIfAny = (path) =>
  get(path).catch((error) => {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  });

/** A page needs:
 *
 * - `noun`, `list` (the name of the list it is from) and `command`, which shows the same
 * - `states`, the words for how it stands; `beside`, elements beside these
 * - `buttons`, which are pressed by their key shortcuts, too; `panels` above the history
 * - `find(key)`, which asks for it; `draw(found, past)`, which shows it, and returns what of it the history shows, or
 *   nothing if there is no such thing; `missing`, what is said then
 * - `tick(now)`, which counts. `row` is what is shown, with a `state`. */
export class ItemView {
  key = null;
  row = null;
  #name = h("h1", { tabindex: -1 });
  #badge = h("span", { class: "badge" });
  #trouble = h("div", { class: "empty", hidden: true });

  constructor(how) {
    Object.assign(this, how);
    this.title = how.list;
    this.back = h("a", { class: "back", href: "#/" }, `← ${how.list}`);
    this.refresher = new Refresher(
      () => this.#load(),
      (error) => error && this.#fail(`The server did not show this ${this.noun}`, error.message),
    );
    this.history = historyPanel(() => this.refresher.now());
    this.content = h("div", { class: "panels" }, ...how.panels, this.history.element);
    const name = h("div", { class: "name" }, this.#name, this.#badge, ...how.beside);
    const header = h("header", { class: "title" }, this.back, name, h("div", { class: "acts" }, ...how.buttons));
    const about = { class: "view page", "aria-label": this.label };
    this.element = h("section", about, header, this.#trouble, this.content);
    on("tick", (now) => {
      if (!this.element.isConnected) return;
      this.#tick(now);
      if (isOnline()) this.history.tick(storeNow());
    });
    on("event", ({ key }) => this.element.isConnected && key === this.key && this.refresher.kick());
    on("acted", (key) => this.element.isConnected && key === this.key && this.refresher.now());
  }

  async #load() {
    const asked = this.key;
    if (!isAskable(asked)) {
      const how = `It takes it for a step in a path. Use the command line: ${this.command}`;
      return this.#fail("A browser cannot ask for this key", how);
    }
    const history = get(lockPath(asked, `/history${query({ limit: this.history.limit })}`));
    const [found, past] = await Promise.all([this.find(asked), history]);
    if (asked !== this.key) return;
    const holders = this.draw(found, past);
    if (!holders) return this.#fail(...this.missing);
    for (const element of [this.content, this.#badge]) mark(element, "hidden", false);
    mark(this.#trouble, "hidden", true);
    this.history.draw(past.items, holders, storeNow());
    this.#tick(performance.now());
  }

  #hide() {
    this.row = null;
    for (const element of [this.content, this.#badge, ...this.beside, ...this.buttons]) mark(element, "hidden", true);
  }

  #fail(title, message) {
    const link = h("a", { class: "button", href: this.back.href }, `All ${this.list.toLowerCase()}`);
    refill(this.#trouble, say(title, clean(message), link));
    mark(this.#trouble, "hidden", false);
    this.#hide();
  }

  #tick(now) {
    if (!this.row) return;
    label(this.#badge, ...this.states[this.row.state]);
    mark(this.#badge, "data-state", this.row.state);
    this.tick(now);
  }

  show(parameters, key, listAddress) {
    this.key = key;
    this.title = clean(key);
    this.back.href = listAddress;
    put(this.#name, this.title);
    this.#hide();
    mark(this.#trouble, "hidden", true);
    this.history.reset();
    this.refresher.start();
    this.#name.focus({ preventScroll: true });
  }

  hide() {
    this.refresher.stop();
  }

  pressed(key) {
    const button = this.buttons.find((each) => each.getAttribute("aria-keyshortcuts") === key && !each.hidden);
    if (button) button.click();
    else if (key === "Escape") location.hash = this.back.getAttribute("href");
    else if (key === "j" || key === "k") this.element.scrollBy({ top: key === "j" ? 120 : -120 });
    else return false;
    return true;
  }
}

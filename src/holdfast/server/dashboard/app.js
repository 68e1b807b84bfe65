// The page: the bar at its top, what is said of the connection, and which view is shown. The rest is in the views.

import { connect } from "./lib/connection.js";
import { h, mark, put } from "./lib/dom.js";
import { clean, duration } from "./lib/format.js";
import { eventsView } from "./views/events.js";
import { instancesView } from "./views/instances.js";
import { helpDialog, listen } from "./lib/keys.js";
import { lockView } from "./views/lock.js";
import { locksView } from "./views/locks.js";
import { serverView } from "./views/server.js";
import { accountDialog, askForToken, signinView } from "./views/signin.js";
import { emit, isReadOnly, may, on, state } from "./lib/state.js";
import { worksView } from "./views/work.js";
import { workView } from "./views/workitem.js";

const VIEWS = {
  locks: locksView,
  lock: lockView,
  work: worksView,
  instances: instancesView,
  events: eventsView,
  server: serverView,
};
// The pages of single things, and the lists they belong to.
const LISTS = new Map([
  [lockView, ["locks", locksView]],
  [workView, ["work", worksView]],
]);
const byId = (id) => document.getElementById(id);
const [main, banner, light, account, readOnly] = ["main", "banner", "light", "account", "read-only"].map(byId);
const why = h("span");
const retry = h("button", { class: "small", click: () => connect() }, "Try now");
banner.append(why, retry);
let view = null;

/** Show what the address says. */
function route() {
  const [path, parameters = ""] = location.hash.slice(1).split("?");
  const [, name = "", ...rest] = path.split("/");
  const listed = Object.hasOwn(VIEWS, name) ? VIEWS[name] : locksView;
  const next = listed === worksView && rest.length ? workView : listed;
  let key = null;
  if (LISTS.has(next)) {
    try {
      key = decodeURIComponent(rest.join("/"));
    } catch {
      key = rest.join("/"); // typed by hand
    }
  }
  view?.hide();
  view = next;
  main.replaceChildren(view.element);
  view.show(new URLSearchParams(parameters), key, LISTS.get(view)?.[1].address);
  const current = LISTS.get(view)?.[0] ?? Object.keys(VIEWS).find((each) => VIEWS[each] === view);
  for (const link of document.querySelectorAll("nav a")) {
    link.href = addressOf(link.dataset.view);
    mark(link, "aria-current", link.dataset.view === current ? "page" : null);
  }
  document.title = `${view.title} · holdfast`;
}

/** Return where a view is: lists stay as they were narrowed down. */
const addressOf = (name) => VIEWS[name].address ?? `#/${name}`;

const go = (name) => (location.hash = addressOf(name));

let wasSignedOut = false;

function show() {
  const isOut = state.link === "signed-out";
  const isNews = isOut !== wasSignedOut;
  wasSignedOut = isOut; // first: what follows changes things, and comes back here
  mark(document.body, "data-stale", state.link === "offline" || state.failing !== "");
  if (isOut && isNews) {
    view?.hide();
    view = null;
    main.replaceChildren(signinView);
    document.title = "Sign in · holdfast";
    askForToken();
    emit("signed-out");
  }
  if (!isOut && state.link === "online" && view === null) route();
  for (const element of document.querySelectorAll("nav, #account")) mark(element, "hidden", isOut || !state.server);
  if (state.server) put(account, state.server.authentication ? clean(state.server.principal.name) : "no sign-in");
  mark(readOnly, "hidden", !isReadOnly());
  put(readOnly, may("observe") ? "read-only" : "no rights");
  showLight();
  tell(performance.now());
}

function showLight() {
  const [word, title] = {
    online: online(),
    offline: ["offline", "There is no connection to the server"],
    starting: ["…", "Connecting"],
    "signed-out": ["", ""],
  }[state.link];
  put(light, word);
  mark(light, "title", title);
  mark(light, "data-light", word);
}

/** Return how it is while there is a server: live only if what is shown is fresh, and what it shows can change. */
function online() {
  if (state.failing) return ["stale", "The server cannot read its locks: what you see may be old"];
  if (state.unready) return ["not ready", "No lock can be taken or renewed: the line below says why"];
  if (state.unready === null) return ["connected", "Connected; whether a lock can be taken cannot be found out"];
  if (state.stream === "live") return ["live", "Connected, and told of events as they happen"];
  if (state.stream === "denied" || !may("observe")) return ["connected", "Connected, and not allowed to look"];
  return ["polling", "Connected; without the event stream it is asked every two seconds"];
}

/** Say in a line what is wrong with the connection, since when, and when it is tried again. */
function tell(now) {
  const isOff = state.link === "offline";
  const isOn = state.link === "online";
  mark(banner, "hidden", !(isOff || (isOn && (state.draining || state.failing || state.unready))));
  mark(banner, "data-kind", isOff || !state.draining ? "offline" : "draining");
  mark(retry, "hidden", !isOff);
  if (isOff) {
    const wait = Math.ceil((state.nextTry - now) / 1000);
    const since = state.since.toLocaleTimeString(undefined, { hour12: false });
    const next = wait > 0 ? `Next try in ${wait} s.` : "Trying now…";
    const old = state.serverAt ? ` What you see is ${duration((now - state.serverAt) / 1000)} old or older.` : "";
    put(why, `Disconnected since ${since}: ${clean(state.trouble)}. ${next}${old}`);
  } else if (state.draining)
    put(why, "This server is draining: it is going down, and tells its clients to connect anew.");
  else if (state.failing)
    put(why, `The server is there, but cannot answer: ${clean(state.failing)}. What you see may be old.`);
  else put(why, `The server is not ready: ${clean(state.unready)}. No lock can be taken or renewed until it is.`);
}

on("change", show);
on("tick", tell);
window.addEventListener("hashchange", () => state.link !== "signed-out" && state.server && route());
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is the view's
  (main.querySelector("[role=grid], h1, h2") ?? main).focus();
});
byId("theme").addEventListener("click", () => window.toggleTheme());
byId("help").addEventListener("click", helpDialog);
account.addEventListener("click", accountDialog);
listen(() => view, go);
connect();

// The server itself, the clients that are connected to it, and the processes that hold locks.

import { get } from "./api.js";
import { h, keyed, put, refill, table } from "./dom.js";
import { fleet } from "./fleet.js";
import { clean, count, duration, number } from "./format.js";
import { LockSet } from "./lockset.js";
import { Refresher } from "./refresh.js";
import { may, on, state } from "./state.js";

const MOST_LOCKS = 5000;
const MOST_SHOWN = 500;
const EVERYTHING = { show: "use", prefix: "", owner: "", type: "" };
const HISTORY = { none: "breaks only", notable: "what went wrong, and operations", all: "everything" };

const lockSet = new LockSet(); // our own: the list may be narrowed down
let isShown = false;
let clients = [];
let cameAt = 0;

const facts = h("dl", { class: "facts" });
const clientRows = h("tbody");
const processRows = h("tbody");
const [clientCount, processCount] = [h("span", { class: "count" }), h("span", { class: "count" })];
const [clientNote, processNote] = [h("p", { class: "muted" }), h("p", { class: "muted" })];
const clientTable = table(clientRows, "Host:pid", "Principal", "Instance", "Address", ["For", "num"]);
const processTable = table(processRows, "Host:pid", "Owner", ["Locks", "num"], ["Longest", "num"], "");

const connected = new Refresher(
  async () => {
    const answer = await get("/v1/clients");
    clients = answer.items;
    cameAt = answer.cameAt;
    draw();
  },
  (error) => {
    clients = [];
    draw();
    put(clientNote, clean(error.message));
  },
);
const holding = new Refresher(
  async () => {
    await lockSet.load(EVERYTHING, MOST_LOCKS, draw);
    draw();
  },
  (error) => put(processNote, clean(error.message)),
);

function draw() {
  drawServer();
  drawClients();
  drawProcesses();
  tick(performance.now());
}

function drawServer() {
  const { server } = state;
  if (!server) return;
  const { kind, durable, signals } = server.store;
  const lines = {
    Version: server.version,
    Instance: server.instance,
    Store: [kind, durable ? "durable" : "gone with the server", !signals && "without signals"]
      .filter(Boolean)
      .join(", "),
    History: HISTORY[server.history] ?? server.history,
    Authentication: server.authentication ? "by access token" : "off: whoever reaches this server may do everything",
    State: standing(),
  };
  const fact = ([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, clean(text)));
  refill(facts, Object.entries(lines).map(fact));
}

/** Return how it is, as the light and the line at the top of every page have it. */
function standing() {
  if (state.draining) return "draining: it is going down";
  if (state.unready) return `not ready: ${state.unready}`;
  return state.unready === null ? "connected; whether it is ready cannot be found out" : "serving";
}

function drawClients() {
  put(clientCount, number(clients.length));
  const make = () =>
    h(
      "tr",
      {},
      [1, 2, 3, 4].map(() => h("td", { class: "text" })),
      h("td", { class: "num" }),
    );
  keyed(
    clientRows,
    clients,
    (each) => each.address,
    make,
    (row, each) => {
      const texts = [`${each.host}:${each.pid}`, each.principal || "—", each.instance, each.address];
      texts.forEach((text, index) => put(row.children[index], clean(text)));
    },
  );
  const none = clients.length ? "" : "No client has a stream for its signals open. ";
  put(clientNote, `${none}${may("admin") ? "" : "Without the right admin:* only your own clients are shown."}`);
}

/** Return the processes that hold locks, those with the most first. */
function processes() {
  const found = new Map();
  for (const { view, since } of lockSet.rows) {
    if (!view.holder) continue;
    const at = `${view.holder.host}:${view.holder.pid}`;
    const each = found.get(at) ?? { at, locks: 0, oldest: Infinity, owners: new Set() };
    each.locks += 1;
    each.oldest = Math.min(each.oldest, since);
    each.owners.add(view.holder.owner);
    found.set(at, each);
  }
  return [...found.values()].sort((a, b) => b.locks - a.locks || (a.at < b.at ? -1 : 1));
}

function drawProcesses() {
  const all = processes();
  const streams = new Set(clients.map((each) => `${each.host}:${each.pid}`));
  const cells = ["text", "num", "num", ""].map((style) => () => h("td", { class: style }));
  const make = () =>
    h(
      "tr",
      {},
      h("td", { class: "text" }, h("a")),
      cells.map((cell) => cell()),
    );
  put(processCount, number(all.length));
  keyed(
    processRows,
    all.slice(0, MOST_SHOWN),
    (each) => each.at,
    make,
    (row, each) => {
      const [where, owners, locks, oldest, stream] = row.children;
      const [first] = each.owners;
      put(where.firstChild, clean(each.at));
      where.firstChild.href = `#/locks?${new URLSearchParams({ q: each.at })}`;
      put(owners, `${fleet.nameOf(first)}${each.owners.size > 1 ? ` and ${number(each.owners.size - 1)} more` : ""}`);
      put(locks, number(each.locks));
      put(oldest, duration((performance.now() - each.oldest) / 1000));
      put(stream, streams.has(each.at) ? "connected" : "");
    },
  );
  const some = `Of the first ${count(lockSet.rows.length, "lock")}; there are more.`;
  put(processNote, lockSet.more ? some : all.length ? "" : "Nobody holds a lock.");
}

function tick(now) {
  for (const [index, row] of [...clientRows.children].entries()) {
    put(row.lastChild, duration(clients[index].connected_for + (now - cameAt) / 1000));
  }
}

on("tick", (now) => isShown && tick(now));
on("change", () => isShown && drawServer());
on("signed-out", () => {
  lockSet.clear();
  clients = [];
});

const panel = (style, title, ...content) => h("section", { class: style }, h("h2", {}, ...title), ...content);

export const serverView = {
  title: "Server",
  element: h(
    "section",
    { class: "view page", "aria-label": "Server" },
    h(
      "div",
      { class: "panels" },
      panel("panel wide", ["Server"], facts),
      panel(
        "panel",
        ["Processes that hold locks", processCount],
        h("div", { class: "scroll" }, processTable),
        processNote,
      ),
      panel("panel", ["Connected clients", clientCount], h("div", { class: "scroll" }, clientTable), clientNote),
    ),
  ),
  show() {
    isShown = true;
    draw();
    connected.start();
    holding.start();
  },
  hide() {
    isShown = false;
    connected.stop();
    holding.stop();
  },
  pressed: () => false,
};

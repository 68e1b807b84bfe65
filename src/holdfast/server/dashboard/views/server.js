// The server itself, the clients that are connected to it, and the processes that hold locks.

import { get } from "../lib/api.js";
import { factList, h, keyed, panel, put, table, tableRow } from "../lib/dom.js";
import { fleet } from "../lib/fleet.js";
import { clean, count, duration, number } from "../lib/format.js";
import { Refresher } from "../lib/refresh.js";
import { RowSet } from "../lib/rowset.js";
import { may, on, state } from "../lib/state.js";
import { LOCKS } from "./lockset.js";

const MOST_LOCKS = 5000;
const MOST_SHOWN = 500;
const HISTORY = { none: "breaks only", notable: "what went wrong, and operations", all: "everything" };

const lockSet = new RowSet(LOCKS); // our own: the list may be narrowed down
let clients = [];
let cameAt = 0;

const [facts, drawFacts] = factList();
const clientRows = h("tbody");
const processRows = h("tbody");
const [clientCount, processCount] = [h("span", { class: "count" }), h("span", { class: "count" })];
const [clientNote, processNote] = [h("p", { class: "muted" }), h("p", { class: "muted" })];
const clientTable = table(clientRows, "Host:pid", "Principal", "Instance", "Address", ["For", "num"]);
const processTable = table(processRows, "Host:pid", "Owner", ["Locks", "num"], ["Longest", "num"], "");
const scroll = (table) => h("div", { class: "scroll" }, table);
const panels = [
  panel("panel wide", "Server", facts),
  panel("panel", ["Processes that hold locks", processCount], scroll(processTable), processNote),
  panel("panel", ["Connected clients", clientCount], scroll(clientTable), clientNote),
];
const element = h("section", { class: "view page", "aria-label": "Server" }, h("div", { class: "panels" }, panels));

const connected = new Refresher(
  async () => ({ items: clients, cameAt } = await get("/v1/clients")),
  (error) => {
    if (error) clients = [];
    draw();
    if (error) put(clientNote, clean(error.message));
  },
);
const holding = new Refresher(
  () => lockSet.load({ show: "use" }, MOST_LOCKS, draw),
  (error) => (error ? put(processNote, clean(error.message)) : draw()),
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
  const lasts = durable ? "durable" : "gone with the server";
  drawFacts({
    Version: clean(server.version),
    Instance: clean(server.instance),
    Store: clean(`${kind}, ${lasts}${signals ? "" : ", without signals"}`),
    History: HISTORY[server.history] ?? clean(server.history),
    Authentication: server.authentication ? "by access token" : "off: whoever reaches this server may do everything",
    State: clean(standing()),
  });
}

/** Return how it is, as the light and the line at the top of every page have it. */
function standing() {
  if (state.draining) return "draining: it is going down";
  if (state.unready) return `not ready: ${state.unready}`;
  return state.unready === null ? "connected; whether it is ready cannot be found out" : "serving";
}

function drawClients() {
  put(clientCount, number(clients.length));
  const make = () => tableRow("text", "text", "text", "text", "num");
  keyed(clientRows, clients, (each) => each.address, make, (row, each) => {
    const texts = [`${each.host}:${each.pid}`, each.principal || "—", each.instance, each.address];
    texts.forEach((text, index) => put(row.children[index], clean(text)));
  });
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
  const make = () => {
    const row = tableRow("text", "text", "num", "num", "");
    row.firstChild.append(h("a"));
    return row;
  };
  put(processCount, number(all.length));
  keyed(processRows, all.slice(0, MOST_SHOWN), (each) => each.at, make, (row, each) => {
    const [where, owners, locks, oldest, stream] = row.children;
    const [first] = each.owners;
    put(where.firstChild, clean(each.at));
    where.firstChild.href = `#/locks?${new URLSearchParams({ q: each.at })}`;
    put(owners, `${fleet.nameOf(first)}${each.owners.size > 1 ? ` and ${number(each.owners.size - 1)} more` : ""}`);
    put(locks, number(each.locks));
    put(oldest, duration((performance.now() - each.oldest) / 1000));
    put(stream, streams.has(each.at) ? "connected" : "");
  });
  const some = `Of the first ${count(lockSet.rows.length, "lock")}; there are more.`;
  put(processNote, lockSet.more ? some : all.length ? "" : "Nobody holds a lock.");
}

function tick(now) {
  for (const [index, row] of [...clientRows.children].entries()) {
    put(row.lastChild, duration(clients[index].connected_for + (now - cameAt) / 1000));
  }
}

on("tick", (now) => element.isConnected && tick(now));
on("change", () => element.isConnected && drawServer());
on("signed-out", () => (clients = []));

export const serverView = {
  title: "Server",
  element,
  show() {
    draw();
    connected.start();
    holding.start();
  },
  hide() {
    connected.stop();
    holding.stop();
  },
  pressed: () => false,
};

// The instances that have joined, as the page knows them: for their own view, and for whoever has only an id.

import { get, Problem, query, Unreachable } from "./api.js";
import { debounced } from "./dom.js";
import { clean, lockLink, workLink } from "./format.js";
import { emit, may, on } from "./state.js";

const PAGE = 500;
const MOST = 2000;
const SOON = 300; // ms: many join at once
const ORDER = { alive: 0, draining: 1, dead: 2, left: 3 };
const byName = new Intl.Collator(undefined, { numeric: true }).compare;

/** One instance, kept through refreshes. */
class Member {
  ttl = 0; // the longest that it was seen to have left

  take(view, cameAt) {
    this.view = view;
    this.end = cameAt + view.expires_in * 1000;
    this.ttl = Math.max(this.ttl, view.expires_in);
    this.text = `${view.name} ${view.id} ${view.host}:${view.pid} ${view.version}`.toLowerCase();
    return this;
  }

  get isGone() {
    return this.view.state === "left" || this.view.state === "dead";
  }

  /** Return the seconds until it counts as dead, unless it is heard of. */
  left(now) {
    return Math.max(0, (this.end - now) / 1000);
  }
}

let asked = 0;
let taken = 0;

export const fleet = {
  members: [], // those that are there first
  byId: new Map(),

  async load() {
    const turn = ++asked;
    const found = new Map();
    let after = "";
    while (after !== null && found.size < MOST) {
      const page = await get(`/v1/instances${query({ after, limit: PAGE })}`);
      for (const view of page.instances) {
        found.set(view.id, (fleet.byId.get(view.id) ?? new Member()).take(view, page.cameAt));
      }
      after = page.after;
    }
    if (turn < taken) return; // somebody asked later, and was answered sooner
    taken = turn;
    fleet.byId = found;
    const order = ({ view: a }, { view: b }) =>
      ORDER[a.state] - ORDER[b.state] || byName(a.name, b.name) || a.joined_at - b.joined_at;
    fleet.members = [...found.values()].sort(order);
  },

  /** Return how an instance is called; its id, if nothing else is known. Who is no instance goes by its own name. */
  nameOf(id) {
    return clean(fleet.byId.get(id)?.view.name || id);
  },
};

/** Return the address of what an event is about. */
export function eventLink({ key, kind, owner }) {
  if (["joined", "draining", "left", "died"].includes(kind)) {
    return `#/instances?${new URLSearchParams({ show: "all", q: key.slice(key.indexOf(":") + 1) })}`;
  }
  return isOfWork({ kind, owner }) ? workLink(key) : lockLink(key);
}

/** Tell whether an event is of work: by what it is, or by whose it is. */
export const isOfWork = ({ kind, owner }) =>
  ["assigned", "returned", "abandoned"].includes(kind) || fleet.byId.has(owner);

/** Learn the names of who is there: owners of locks may be instances. Without the right to look, nothing has a name. */
async function learn() {
  if (!may("observe")) return;
  try {
    await fleet.load();
    emit("fleet");
  } catch (error) {
    if (!(error instanceof Problem || error instanceof Unreachable)) throw error;
  }
}

const soon = debounced(learn, SOON);
on("following", learn); // from here on, whoever joins is an event
on("event", ({ kind }) => kind === "joined" && soon());
on("signed-out", () => {
  fleet.members = [];
  fleet.byId = new Map();
});

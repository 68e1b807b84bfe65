// Keeping what is shown up to date: at once when an event says so, otherwise every two seconds, because plain grants
// are in no stream. Nothing is asked while the tab is hidden or the server gone. And one clock for all countdowns.

import { Unreachable } from "./api.js";
import { emit, isOnline, on } from "./state.js";

const EVERY = 2000;
const SHARE = 6; // a load that takes long is asked for less often: it may take a seventh of the time
const SOON = 150; // ms: events come in bursts

const running = new Set(); // those that are on

/** Calls `load` while it is on, and `ended` after it: with an error, if the server has something against it. */
export class Refresher {
  problem = ""; // what the server had against it the last time
  isLoaded = false;
  #timer = 0;
  #loading = false;
  #again = false;
  #took = 0;

  constructor(load, ended) {
    Object.assign(this, { load, ended });
  }

  start() {
    running.add(this);
    return this.now();
  }

  stop() {
    running.delete(this);
    clearTimeout(this.#timer);
  }

  /** Load soon: something has happened. */
  kick() {
    if (this.#loading) this.#again = true;
    else this.#plan(Math.max(SOON, this.#took * 2));
  }

  #plan(pause) {
    clearTimeout(this.#timer);
    if (running.has(this) && !document.hidden) this.#timer = setTimeout(() => this.now(), pause);
  }

  async now() {
    if (!running.has(this) || document.hidden || !isOnline()) return;
    if (this.#loading) {
      this.#again = true;
      return;
    }
    clearTimeout(this.#timer);
    this.#loading = true;
    this.#again = false;
    const began = performance.now();
    try {
      await this.load();
      this.problem = "";
      this.isLoaded = true;
      this.ended();
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Unreachable)) {
        this.problem = error.message;
        this.ended(error);
      }
    }
    this.#took = performance.now() - began;
    this.#loading = false;
    this.#plan(this.#again ? Math.max(SOON, this.#took * 2) : Math.max(EVERY, this.#took * SHARE));
  }
}

const refreshAll = () => running.forEach((each) => each.now());
on("connected", refreshAll);
document.addEventListener("visibilitychange", refreshAll); // of a hidden tab, none does anything
setInterval(() => document.hidden || emit("tick", performance.now()), 1000);

// Keeping what is shown up to date: at once when an event says so, otherwise every two seconds, because plain grants
// are in no stream. Nothing is asked while the tab is hidden or the server gone. And one clock for all countdowns.

import { Unreachable } from "./api.js";
import { emit, isOnline, on } from "./state.js";

const EVERY = 2000;
const SHARE = 6; // a load that takes long is asked for less often: it may take a seventh of the time
const SOON = 150; // ms: events come in bursts

/** Calls `load` while it is on, and `ended` after it: with an error, if the server has something against it. */
export class Refresher {
  problem = ""; // what the server had against it the last time
  isLoaded = false;
  #timer = 0;
  #loading = false;
  #again = false;
  #took = 0;
  #on = false;
  #leave = () => {};

  constructor(load, ended) {
    Object.assign(this, { load, ended });
  }

  start() {
    this.stop();
    this.#on = true;
    const seen = () => (document.hidden ? clearTimeout(this.#timer) : this.now());
    const deaf = on("connected", () => this.now());
    document.addEventListener("visibilitychange", seen);
    this.#leave = () => {
      deaf();
      document.removeEventListener("visibilitychange", seen);
    };
    return this.now();
  }

  stop() {
    this.#on = false;
    this.#leave();
    clearTimeout(this.#timer);
  }

  /** Load soon: something has happened. */
  kick() {
    if (this.#loading) this.#again = true;
    else this.#plan(Math.max(SOON, this.#took * 2));
  }

  #plan(pause) {
    clearTimeout(this.#timer);
    if (this.#on && !document.hidden) this.#timer = setTimeout(() => this.now(), pause);
  }

  async now() {
    if (!this.#on || document.hidden || !isOnline()) return;
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

setInterval(() => document.hidden || emit("tick", performance.now()), 1000);

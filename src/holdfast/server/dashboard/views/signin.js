// Signing in with an access token, what a token may do, and signing out.

import { connect } from "../lib/connection.js";
import { close, field, inform } from "../lib/dialog.js";
import { h, mark, put } from "../lib/dom.js";
import { clean } from "../lib/format.js";
import { emit, may, state } from "../lib/state.js";
import { accessToken, forgetToken, keepToken } from "../lib/token.js";

const WHAT = {
  observe: "look at locks, work, instances, their history and events",
  acquire: "take and release locks, offer and do work",
  break: "take locks away from their holders, forget work",
  admin: "do all of that, resize semaphores, and manage access",
};

const hints = { autocomplete: "current-password", spellcheck: "false", placeholder: "hf_…" };
const secret = h("input", { type: "password", id: "token", required: true, ...hints });
const remember = h("input", { type: "checkbox" });
const wrong = h("p", { class: "notice", role: "alert", hidden: true });
const button = h("button", { class: "solid", type: "submit" }, "Sign in");
const inTheOpen = "This connection is not encrypted: others on the way can read the token.";
const isOpenLine = location.protocol === "http:" && !["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

export const signinView = h(
  "section",
  { class: "signin", "aria-labelledby": "signin-title" },
  h(
    "form",
    { submit: signIn },
    h("h1", { id: "signin-title" }, "Sign in"),
    h("p", { class: "muted" }, "This server wants to know who asks."),
    field("Access token", secret),
    h("label", { class: "check" }, remember, "Remember on this device"),
    isOpenLine && h("p", { class: "notice" }, inTheOpen),
    wrong,
    button,
    h("p", { class: "muted" }, "Whoever runs the server makes one with ", h("code", {}, "holdfast token create"), "."),
  ),
);

function complain(text) {
  put(wrong, text);
  mark(wrong, "hidden", false);
}

async function signIn(event) {
  event.preventDefault();
  keepToken(secret.value.trim(), remember.checked);
  mark(button, "disabled", true);
  await connect();
  mark(button, "disabled", false);
  if (state.link === "online") {
    secret.value = "";
    mark(wrong, "hidden", true);
  } else {
    const isRefused = state.link === "signed-out";
    if (isRefused) forgetToken();
    const unknown = "The server does not know this token, or not any more.";
    complain(isRefused ? unknown : `There is no answer: ${state.trouble}.`);
    secret.select();
  }
}

/** Show the form, and say so if a token that worked does not any more. */
export function askForToken() {
  if (accessToken()) {
    forgetToken();
    complain("You were signed out: the token is not valid any more.");
  }
  secret.focus();
}

function signOut() {
  forgetToken();
  close();
  mark(wrong, "hidden", true);
  emit("refused", "");
}

/** Show who we are and what we may do. */
export function accountDialog() {
  if (!state.server) return;
  const { authentication, principal } = state.server;
  const { name, rights } = principal;
  const lines = rights.map((right) => {
    const colon = right.indexOf(":");
    const [verb, pattern] = [right.slice(0, colon), right.slice(colon + 1)];
    const some = pattern.endsWith("*") ? `keys that begin with ${clean(pattern.slice(0, -1))}` : clean(pattern);
    const on = pattern === "*" ? "all keys" : some;
    return h("tr", {}, h("td", {}, h("code", {}, clean(right))), h("td", {}, `${WHAT[verb] ?? verb}: ${on}`));
  });
  const intro = !authentication
    ? "Authentication is off: whoever reaches this server may do everything."
    : rights.length
      ? `You are ${clean(name)}. This access token may:`
      : `You are ${clean(name)}. This access token has no rights: it can do nothing here.`;
  const content = [
    h("p", {}, intro),
    lines.length > 0 && authentication && h("table", { class: "rights" }, h("tbody", {}, lines)),
    !may("break") && h("p", { class: "muted" }, "It may not break any lock, nor forget any work."),
  ];
  const out = authentication && accessToken() && h("button", { click: signOut }, "Sign out");
  inform(authentication ? "Your access" : "Access", content, out);
}

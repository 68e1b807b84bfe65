// Signing in with an access token, what a token may do, and signing out.

import { connect } from "./connection.js";
import { actions, closeButton, open } from "./dialog.js";
import { h, mark, put } from "./dom.js";
import { clean } from "./format.js";
import { emit, may, state } from "./state.js";
import { accessToken, forgetToken, keepToken } from "./token.js";

const WHAT = {
  observe: "look at locks, work, instances, their history and events",
  acquire: "take and release locks, offer and do work",
  break: "take locks away from their holders, forget work",
  admin: "do all of that, resize semaphores, and manage access",
};

const field = h("input", {
  type: "password",
  id: "token",
  required: true,
  autocomplete: "current-password",
  spellcheck: "false",
  placeholder: "hf_…",
});
const remember = h("input", { type: "checkbox" });
const wrong = h("p", { class: "notice", role: "alert", hidden: true });
const button = h("button", { class: "solid", type: "submit" }, "Sign in");
const isOpenLine = location.protocol === "http:" && !["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

export const signinView = h(
  "section",
  { class: "signin", "aria-labelledby": "signin-title" },
  h(
    "form",
    { submit: signIn },
    h("h1", { id: "signin-title" }, "Sign in"),
    h("p", { class: "muted" }, "This server wants to know who asks."),
    h("label", { class: "field" }, h("span", {}, "Access token"), field),
    h("label", { class: "check" }, remember, "Remember on this device"),
    isOpenLine &&
      h("p", { class: "notice" }, "This connection is not encrypted: others on the way can read the token."),
    wrong,
    button,
    h("p", { class: "muted" }, "Whoever runs the server makes one with ", h("code", {}, "holdfast token create"), "."),
  ),
);

async function signIn(event) {
  event.preventDefault();
  keepToken(field.value.trim(), remember.checked);
  mark(button, "disabled", true);
  await connect();
  mark(button, "disabled", false);
  if (state.link === "online") {
    field.value = "";
    mark(wrong, "hidden", true);
  } else {
    const isRefused = state.link === "signed-out";
    if (isRefused) forgetToken();
    put(
      wrong,
      isRefused ? "The server does not know this token, or not any more." : `There is no answer: ${state.trouble}.`,
    );
    mark(wrong, "hidden", false);
    field.select();
  }
}

/** Show the form, and say so if a token that worked does not any more. */
export function askForToken() {
  if (accessToken()) {
    forgetToken();
    put(wrong, "You were signed out: the token is not valid any more.");
    mark(wrong, "hidden", false);
  }
  field.focus();
}

function signOut() {
  forgetToken();
  document.querySelector("dialog")?.close();
  mark(wrong, "hidden", true);
  emit("refused", "");
}

/** Show who we are and what we may do. */
export function accountDialog() {
  const { server } = state;
  if (!server) return;
  const { name, rights } = server.principal;
  const lines = rights.map((right) => {
    const colon = right.indexOf(":");
    const [verb, pattern] = [right.slice(0, colon), right.slice(colon + 1)];
    const on =
      pattern === "*"
        ? "all keys"
        : pattern.endsWith("*")
          ? `keys that begin with ${clean(pattern.slice(0, -1))}`
          : clean(pattern);
    return h("tr", {}, h("td", {}, h("code", {}, clean(right))), h("td", {}, `${WHAT[verb] ?? verb}: ${on}`));
  });
  const intro = !server.authentication
    ? "Authentication is off: whoever reaches this server may do everything."
    : rights.length
      ? `You are ${clean(name)}. This access token may:`
      : `You are ${clean(name)}. This access token has no rights: it can do nothing here.`;
  open(server.authentication ? "Your access" : "Access", [
    h("p", {}, intro),
    lines.length > 0 && server.authentication && h("table", { class: "rights" }, h("tbody", {}, lines)),
    !may("break") && h("p", { class: "muted" }, "It may not break any lock, nor forget any work."),
    actions(
      server.authentication && accessToken() && h("button", { click: signOut }, "Sign out"),
      closeButton("Close", { autofocus: true }),
    ),
  ]);
}

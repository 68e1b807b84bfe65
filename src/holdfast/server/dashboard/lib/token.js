// The access token: kept for this tab, or on this device if the person wants that. It is sent as a header only.

const NAME = "holdfast.access-token";

/** Use what the browser stores. That may be switched off: then a token lives as long as the page. */
export function stored(use) {
  try {
    return use() ?? "";
  } catch {
    return "";
  }
}

let current = stored(() => sessionStorage.getItem(NAME)) || stored(() => localStorage.getItem(NAME));

export const accessToken = () => current;

export function keepToken(text, remember) {
  current = text;
  stored(() => {
    (remember ? localStorage : sessionStorage).setItem(NAME, text);
    (remember ? sessionStorage : localStorage).removeItem(NAME);
  });
}

export function forgetToken() {
  current = "";
  stored(() => {
    sessionStorage.removeItem(NAME);
    localStorage.removeItem(NAME);
  });
}

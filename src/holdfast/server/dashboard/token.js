// The access token: kept for this tab, or on this device if the person wants that. It is sent as a header only.

const NAME = "holdfast.access-token";

let current = read(sessionStorage) || read(localStorage);

function read(storage) {
  try {
    return storage.getItem(NAME) ?? "";
  } catch {
    return ""; // storage may be switched off: then a token lives as long as the page
  }
}

export const accessToken = () => current;

export function keepToken(text, remember) {
  current = text;
  try {
    (remember ? localStorage : sessionStorage).setItem(NAME, text);
    (remember ? sessionStorage : localStorage).removeItem(NAME);
  } catch {
    // As above.
  }
}

export function forgetToken() {
  current = "";
  try {
    sessionStorage.removeItem(NAME);
    localStorage.removeItem(NAME);
  } catch {
    // As above.
  }
}

// Making elements. Text only ever becomes text nodes: keys, owners and reasons are anybody's, and may be hostile.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element: `h("a", { class: "key", href }, "text", child)`. Functions become listeners. */
export const h = (tag, properties = {}, ...children) => fill(document.createElement(tag), properties, children);

/** The same for a picture. */
export const svg = (tag, properties = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), properties, children);

const isMissing = (value) => value === undefined || value === null || value === false;
const given = (children) => children.flat().filter((child) => !isMissing(child));

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (!isMissing(value)) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...given(children));
  return element;
}

/** Return a table over `rows`, a tbody; a head is text, or text and its class. */
export function table(rows, ...heads) {
  const cells = heads.map((head) => (Array.isArray(head) ? head : [head, null]));
  const line = cells.map(([text, style]) => h("th", { scope: "col", class: style }, text));
  return h("table", {}, h("thead", {}, h("tr", {}, line)), rows);
}

/** Return a line of a table: an empty cell of each class. */
export const tableRow = (...styles) => h("tr", {}, styles.map((style) => h("td", { class: style })));

/** Return a part of a page, under a heading of text or of several parts. */
export const panel = (style, title, ...content) => h("section", { class: style }, h("h2", {}, title), ...content);

/** Return an element with a list of facts, and a function that fills it with names and what they stand for. */
export function factList() {
  const element = h("dl", { class: "facts" });
  const fact = ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  return [element, (facts) => refill(element, Object.entries(facts).map(fact))];
}

/** Return a heading and a sentence, for where there is nothing to be seen. */
export const say = (title, text, ...rest) => [h("h2", {}, title), h("p", {}, text), ...rest];

/** Return a field to search with, and the same in its frame. */
export function searchBox(placeholder, label, input) {
  const more = { autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/", input };
  const field = h("input", { type: "search", placeholder, "aria-label": label, ...more });
  return [field, h("label", { class: "search" }, field, h("kbd", { "aria-hidden": "true" }, "/"))];
}

/** Set the text of an element, if it is another: what does not change is not drawn again. */
export function put(element, text) {
  if (element.firstChild?.nodeType !== 3 || element.firstChild.data !== text || element.childNodes.length > 1) {
    element.textContent = text;
  }
}

/** Set or remove an attribute, if that changes anything. */
export function mark(element, name, value) {
  if (isMissing(value)) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Set the text of an element, and what is told when one points at it: nothing, if that is empty. */
export function label(element, text, title = text) {
  put(element, text);
  mark(element, "title", title || null);
}

/** Have a bar show a share between 0 and 1. */
export function fillBar(bar, share) {
  const scale = `scaleX(${Number(Math.min(1, share).toFixed(3))})`; // as the browser writes it
  if (bar.style.transform !== scale) bar.style.transform = scale;
}

/** Put these children in place of all there are. */
export function refill(element, ...children) {
  element.replaceChildren(...given(children));
  return element;
}

/** Make the children of a parent the given ones, by key: `make` new ones, `update` all, and move as few as possible. */
export function keyed(parent, items, keyOf, make, update = () => {}) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const [index, item] of items.entries()) {
    const key = String(keyOf(item, index));
    let child = known.get(key);
    if (child) known.delete(key);
    else {
      child = make(item, index);
      child.dataset.key = key;
    }
    update(child, item, index);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of known.values()) child.remove();
}

/** Call `call` when `pause` ms have passed without another call; `.now()` at once. */
export function debounced(call, pause) {
  let timer = 0;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(call, pause);
  };
  later.now = () => {
    clearTimeout(timer);
    call();
  };
  return later;
}

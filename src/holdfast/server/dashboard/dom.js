// Making elements. Text only ever becomes text nodes: keys, owners and reasons are anybody's, and may be hostile.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element: `h("a", { class: "key", href }, "text", child)`. Functions become listeners. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for a picture. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Return a table over `rows`, a tbody; a head is text, or text and its class. */
export function table(rows, ...heads) {
  const cells = heads.map((head) => (Array.isArray(head) ? head : [head, null]));
  const line = cells.map(([text, style]) => h("th", { scope: "col", class: style }, text));
  return h("table", {}, h("thead", {}, h("tr", {}, line)), rows);
}

/** Set the text of an element, if it is another: what does not change is not drawn again. */
export function put(element, text) {
  if (element.firstChild?.nodeType !== 3 || element.firstChild.data !== text || element.childNodes.length > 1) {
    element.textContent = text;
  }
}

/** Set or remove an attribute, if that changes anything. */
export function mark(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

/** Put these children in place of all there are. */
export function refill(element, ...children) {
  element.replaceChildren(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false),
  );
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

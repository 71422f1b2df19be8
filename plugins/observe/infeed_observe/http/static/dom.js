// The page's elements: described as a tree, and changed in place, so that focus, selection and
// scrolling stay.
//
// All data goes through text nodes and attributes, never through HTML: names, reasons and peers
// come from users.

const NAMESPACE = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

// Control characters, and those that reverse the text after them.
const UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

// Returns the text with invisible characters escaped.
const printable = (text) => String(text).replace(
  UNPRINTABLE, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`,
);

export function setText(node, text) {
  const value = printable(text);
  if (node.textContent !== value) node.textContent = value;
}

export function setAttribute(node, name, value) {
  const text = String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

// Describes an element. Among its properties, `key` tells it from its siblings, `on…` are handlers,
// `style` holds custom properties, and all others are attributes, unless false or undefined.
export const h = (tag, properties, ...children) => ({ tag, properties, children: children.flat(2) });

export const icon = (id, name = "icon") => (
  h("svg", { class: name, "aria-hidden": "true" }, h("use", { href: `#${id}` }))
);

export const meter = (share) => h("span", { class: "meter", "aria-hidden": "true" }, h("i", {
  style: { "--share": Math.min(1, Math.max(0, share || 0)) },
}));

// Changes the children of `parent` to those described.
export function render(parent, ...children) {
  const keyed = new Map([...parent.childNodes].filter((node) => node.key !== undefined).map((node) => [node.key, node]));
  let next = parent.firstChild;
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    const isText = typeof child !== "object";
    const key = isText ? undefined : child.properties.key;
    let node = key === undefined ? next : keyed.get(key);
    if (!fits(node, child, isText, key)) node = create(parent, child, isText, key);
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
    if (isText) setText(node, child);
    else update(node, child);
  }
  while (next) {
    const last = next;
    next = next.nextSibling;
    last.remove();
  }
}

const fits = (node, child, isText, key) => Boolean(node) && node.key === key
  && (isText ? node.nodeType === Node.TEXT_NODE : node.localName === child.tag);

function create(parent, child, isText, key) {
  if (isText) return document.createTextNode("");
  const isDrawn = child.tag === "svg" || parent.namespaceURI === NAMESPACE;
  const node = isDrawn ? document.createElementNS(NAMESPACE, child.tag) : document.createElement(child.tag);
  node.key = key;
  return node;
}

function update(node, { properties, children }) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node[name] = value;
    else if (name === "style") Object.entries(value).forEach((each) => node.style.setProperty(...each));
    else if (value === false || value === undefined) node.removeAttribute(name);
    else if (name !== "key") setAttribute(node, name, value);
  }
  render(node, ...children);
}

// Describes the head and the body of a table, whose rows are cards on a phone. A column is
// [name, label, classes, function of a row]; one with the class "row" names the row.
export function table(columns, rows, propertiesOf) {
  const head = columns.map(([, label, classes]) => (
    h("th", { scope: "col", class: /\bn\b/.exec(classes)?.[0] }, label)
  ));
  const cell = (row, [name, label, classes, of]) => (/\brow\b/.test(classes)
    ? h("th", { scope: "row", class: classes, "data-label": classes !== "row" && label, "data-f": name }, of(row))
    : h("td", { class: classes || false, "data-label": label, "data-f": name }, of(row)));
  const body = rows.map((row) => h("tr", propertiesOf(row), columns.map((column) => cell(row, column))));
  return [h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)];
}

// The page's elements: changed in place, so that focus, selection and scrolling stay.
//
// All data goes through textContent and attributes, never through HTML: names, reasons and peers
// come from users.

export const byId = (id) => document.getElementById(id);

// Control characters, and those that reverse the text behind them.
const UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

// Returns the text with escapes for what cannot be seen.
export const printable = (text) => String(text).replace(
  UNPRINTABLE, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`,
);

export function setText(node, text) {
  const value = printable(text);
  if (node.textContent !== value) node.textContent = value;
}

// Sets a path, which may break behind its slashes; a copy of it has no other characters.
export function setPath(node, path) {
  const value = printable(path);
  if (node.textContent === value) return;
  const parts = value.split(/(?<=\/)/).flatMap((part) => [document.createElement("wbr"), part]);
  node.replaceChildren(...parts.slice(1));
}

export function setAttribute(node, name, value) {
  const text = String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

// Sets the text of the parts `data-f` of a node, by name.
export function fill(node, texts) {
  node.parts ??= new Map(
    [node, ...node.querySelectorAll("[data-f]")]
      .filter((each) => each.dataset?.f).map((each) => [each.dataset.f, each]),
  );
  for (const [name, text] of Object.entries(texts)) setText(node.parts.get(name), text);
}

// Shows the symbol `id` of the page's sprite in a part `data-use`.
export function setIcon(node, name, id) {
  setAttribute(node.querySelector(`[data-use="${name}"]`), "href", `#${id}`);
}

// Sets the length of a node's meter, a share from 0 to 1.
export function setMeter(node, share) {
  node.querySelector(".meter > i").style.setProperty("--share", Math.min(1, Math.max(0, share || 0)));
}

export function clone(template) {
  return byId(template).content.firstElementChild.cloneNode(true);
}

// Makes the children of `parent` those of `items`: one node for each key, kept as long as the key
// is there, in the items' order.
export function reconcile(parent, items, keyOf, create, update) {
  const nodes = (parent.keyed ??= new Map());
  const keys = items.map(keyOf);
  const wanted = new Set(keys);
  for (const [key, node] of nodes) {
    if (!wanted.has(key)) {
      node.remove();
      nodes.delete(key);
    }
  }
  let next = parent.firstElementChild;
  items.forEach((item, index) => {
    const key = keys[index];
    let node = nodes.get(key);
    if (!node) nodes.set(key, (node = create(item)));
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
    update(node, item);
  });
}

export const NAMESPACE = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}) {
  const node = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

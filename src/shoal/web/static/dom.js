// Elements made by hand: text is always text. Nothing in these pages parses HTML.

import { chosen } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && typeof value === "boolean") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

export function link(path, parameters, ...children) {
  return h("a", { href: address(path, { ...parameters, cluster: chosen.cluster }) }, ...children);
}

export function address(path, parameters) {
  const given = Object.entries(parameters || {}).filter(([, v]) => v !== undefined && v !== null && v !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

const MARKS = { problem: ["✗", "problem"], note: ["!", "note"], ok: ["✓", "fine"], unknown: ["?", "not known"] };

export function mark(level) {
  const [sign, word] = MARKS[level] || MARKS.unknown;
  return h("span", { class: `mark ${level}`, title: word }, h("span", { "aria-hidden": "true" }, sign), h("span", { class: "unseen" }, word));
}

export function section(title, ...children) {
  const id = `s-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

export function muted(...children) {
  return h("p", { class: "muted" }, ...children);
}

// A column of numbers.
export function num(head, cell, key) {
  return { head, cell, key, num: true };
}

// A table of rows; a column is {head, cell, key, num}. With a key the head sorts.
// ``keep`` remembers how it was sorted from one drawing to the next.
export function table(caption, columns, rows, { sort = null, empty = "nothing", keep = {} } = {}) {
  const body = h("tbody");
  let [by, up] = keep[caption] || [sort, true];
  const show = () => {
    const ordered = [...rows];
    if (by !== null) {
      const key = columns[by].key;
      ordered.sort((a, b) => compare(key(a), key(b)) * (up ? 1 : -1));
    }
    replace(body, ordered.length ? ordered.map((row) => h("tr", null, columns.map((c, i) => {
      const cell = c.cell(row);
      return h(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: c.num ? "num" : null }, cell === null || cell === undefined ? "–" : cell);
    }))) : h("tr", null, h("td", { colspan: columns.length, class: "muted" }, empty)));
    heads.forEach((one, i) => one.setAttribute("aria-sort", i === by ? (up ? "ascending" : "descending") : "none"));
  };
  const heads = columns.map((c, i) => h("th", { scope: "col", class: c.num ? "num" : null }, c.key
    ? h("button", { class: "sort", type: "button", onclick: () => { up = by === i ? !up : true; by = i; keep[caption] = [by, up]; show(); } }, c.head)
    : c.head));
  const found = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", null, h("caption", { class: "unseen" }, caption), h("thead", null, h("tr", null, heads)), body));
  show();
  return found;
}

// Draw again what is below a node; who stands in it by keyboard, or has scrolled, stays there.
export function redraw(root, draw) {
  const name = (one) => one.tagName + (one.getAttribute("aria-label") || one.textContent);
  const alike = (wanted) => [...root.querySelectorAll("a, button, [tabindex]")].filter((one) => name(one) === wanted);
  const at = document.activeElement, inside = root.contains(at) && at !== root;
  const wanted = inside ? name(at) : "", index = inside ? alike(wanted).indexOf(at) : -1;
  const scrolled = [...root.querySelectorAll(".scroll")].map((one) => [one.getAttribute("aria-label"), one.scrollLeft, one.scrollTop]);
  draw();
  for (const one of root.querySelectorAll(".scroll")) {
    const was = scrolled.find(([label]) => label === one.getAttribute("aria-label"));
    if (was) [, one.scrollLeft, one.scrollTop] = was;
  }
  if (index >= 0 && !at.isConnected) alike(wanted)[index]?.focus({ preventScroll: true });
}

export function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -1 : 1;
}

const COLORS = 10;
const given = new Map();
// The same name has the same colour on every page; names come first, colours are a help.
export function color(name, next = given.size % COLORS) {
  if (!given.has(name)) given.set(name, next);
  return given.get(name);
}

// Members of a strip: a new one takes the colour that was out of use the longest.
export function colorAll(spans) {
  const until = new Array(COLORS).fill(-Infinity);
  for (const [, end, name] of [...spans].sort((a, b) => a[0] - b[0])) {
    const one = color(name, until.indexOf(Math.min(...until)));
    until[one] = Math.max(until[one], end);
  }
}

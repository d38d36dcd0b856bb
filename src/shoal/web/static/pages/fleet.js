// Every group, the worst first. Only the rows in sight exist: five thousand scroll like fifty.

import { go } from "../app.js";
import { address, compare, h, mark, replace, s, text } from "../dom.js";
import { ago, behind, compact, counted, number } from "../format.js";
import { fleet, onChange } from "../live.js";
import { chosen } from "../api.js";

const LEVELS = { problem: 0, unknown: 1, note: 2, ok: 3 };
const ORDERS = {
  worst: (a, b) => LEVELS[a.level] - LEVELS[b.level] || (b.behind_s ?? -1) - (a.behind_s ?? -1) || compare(a.group, b.group),
  name: (a, b) => compare(a.group, b.group),
  lag: (a, b) => Number(b.lag ?? -1) - Number(a.lag ?? -1) || compare(a.group, b.group),
  behind: (a, b) => (b.behind_s ?? -1) - (a.behind_s ?? -1) || compare(a.group, b.group),
  members: (a, b) => (b.members ?? -1) - (a.members ?? -1) || compare(a.group, b.group),
  rebalance: (a, b) => (b.rebalanced_ms ?? 0) - (a.rebalanced_ms ?? 0) || compare(a.group, b.group),
};
const TRENDS = { rising: "▲ rising", falling: "▼ falling", steady: "steady" };
const MORE = 8, PRINTED_MAX = 2000;
const paper = matchMedia("print");

function drawSpark(node, points) {
  if (node.dataset.points === points) return;
  node.dataset.points = points;
  const known = [...points].map((c, i) => [i * (96 / 23), c === "." ? null : 22 - parseInt(c, 36) * (20 / 35)]).filter(([, y]) => y !== null);
  node.replaceChildren();
  if (known.length < 2) return;
  const path = known.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  node.append(s("polygon", { points: `${known[0][0].toFixed(1)},23 ${path} 96,23` }), s("polyline", { points: path }));
}

class Row {
  constructor() {
    this.mark = h("td", { class: "c-mark" });
    this.name = h("a", { class: "name" });
    this.verdict = h("span", { class: "sub" });
    this.state = h("span", { class: "chip" });
    this.protocol = h("span", { class: "sub" });
    this.members = h("td", { class: "num c-members" });
    this.behind = h("span", null);
    this.lag = h("span", { class: "sub" });
    this.spark = s("svg", { class: "spark", viewBox: "0 0 96 24", "aria-hidden": "true" });
    this.trend = h("span", { class: "sub" });
    this.when = h("span", null);
    this.cause = h("span", { class: "sub" });
    this.node = h("tr", null, this.mark, h("th", { scope: "row", class: "c-name" }, this.name, this.verdict), h("td", { class: "c-state" }, this.state, this.protocol), this.members, h("td", { class: "num c-lag" }, this.behind, this.lag), h("td", { class: "c-spark" }, this.spark, this.trend), h("td", { class: "c-when" }, this.when, this.cause));
    this.row = null;
  }

  set(row, index, selected) {
    this.node.setAttribute("aria-rowindex", index + 2);
    this.node.classList.toggle("selected", selected);
    if (row !== this.row) {
      this.row = row;
      replace(this.mark, mark(row.level));
      text(this.name, row.group);
      this.name.href = address("/group", { group: row.group, cluster: chosen.cluster });
      text(this.verdict, row.verdict);
      this.verdict.title = row.verdict;
      text(this.state, row.problem || row.state);
      this.state.className = `chip state-${row.state.replace(/[^A-Za-z]/g, "")}`;
      text(this.protocol, row.protocol);
      text(this.members, row.members === null ? "–" : number(row.members));
      text(this.behind, behind(row));
      text(this.lag, row.lag === null ? "not known" : counted(row.lag, "record", compact));
      drawSpark(this.spark, row.spark || "");
      text(this.trend, TRENDS[row.trend] || "");
      this.trend.className = `sub ${row.trend}`;
      text(this.cause, row.cause || "");
      this.cause.title = row.cause || "";
    }
    text(this.when, row.rebalanced_ms ? ago(row.rebalanced_ms) : "–");
  }
}

export async function show(main, given) {
  const view = { q: given.q || "", level: given.level || "", state: given.state || "", sort: ORDERS[given.sort] ? given.sort : "worst" };
  let rows = [], selected = -1, selectedName = "", first = -1, pool = [], pending = false;

  const search = h("input", { type: "search", id: "search", placeholder: "Search groups", "aria-label": "Search groups", value: view.q, autocomplete: "off", spellcheck: "false" });
  const state = h("select", { "aria-label": "State" }, ["", "Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead", "unknown"].map((one) => h("option", { value: one, selected: one === view.state }, one || "Every state")));
  const tiles = h("div", { class: "tiles" });
  const count = h("p", { class: "muted", role: "status" });
  const body = h("tbody");
  const above = h("tr", { class: "gap", "aria-hidden": "true" }, h("td"));
  const below = h("tr", { class: "gap", "aria-hidden": "true" }, h("td"));
  const heads = [["", null, "c-mark"], ["Group", "name", "c-name"], ["State", null, "c-state"], ["Members", "members", "c-members num"], ["Behind", "behind", "c-lag num"], ["Lag, last half hour", "lag", "c-spark"], ["Last rebalance", "rebalance", "c-when"]].map(([word, key, name]) => {
    const inner = key ? h("button", { type: "button", class: "sort", onclick: () => filter({ sort: view.sort === key ? "worst" : key }) }, word) : word || h("span", { class: "unseen" }, "Verdict");
    const head = h("th", { scope: "col", class: name }, inner);
    head.dataset.key = key || "";
    return head;
  });
  const grid = h("table", { class: "fleet" }, h("caption", { class: "unseen" }, "Consumer groups"), h("thead", null, h("tr", { "aria-rowindex": "1" }, heads)), body);
  const scroll = h("div", { class: "scroll rows", tabindex: "0", role: "region", "aria-label": "Consumer groups" }, grid);
  const blind = h("p", { class: "notice note", hidden: true });
  replace(main, h("h1", { class: "unseen" }, "Fleet"), tiles, h("div", { class: "filters" }, search, state, count), blind, scroll);
  const height = () => parseFloat(getComputedStyle(scroll).getPropertyValue("--row")) || 52;

  function filter(change) {
    Object.assign(view, change);
    const { sort, ...rest } = view;
    go("/", { ...rest, sort: sort === "worst" ? "" : sort }, { replaced: true });
    state.value = view.state;
    refresh();
    scroll.scrollTop = 0;
  }

  function refresh() {
    const all = [...fleet.rows.values()];
    const wanted = view.q.toLowerCase();
    rows = all.filter((row) => (!wanted || row.group.toLowerCase().includes(wanted) || row.verdict.toLowerCase().includes(wanted)) && (!view.level || row.level === view.level) && (!view.state || row.state === view.state));
    rows.sort(ORDERS[view.sort]);
    selected = selectedName ? rows.findIndex((row) => row.group === selectedName) : -1;
    for (const one of heads) one.setAttribute("aria-sort", one.dataset.key && one.dataset.key === view.sort ? "descending" : "none");
    summary(all);
    grid.setAttribute("aria-rowcount", rows.length + 1);
    text(count, fleet.status && !fleet.status.swept_ms ? "looking at the cluster for the first time" : rows.length === all.length ? counted(rows.length, "group") : `${number(rows.length)} of ${counted(all.length, "group")}`);
    const why = fleet.status && fleet.status.blind;
    blind.hidden = !why;
    if (why) text(blind, `Rebalances and their causes are not shown: ${why}`);
    first = -1;
    draw();
  }

  function summary(all) {
    const levels = { problem: 0, note: 0, ok: 0, unknown: 0 };
    let worst = null;
    for (const row of all) {
      levels[row.level]++;
      if (row.behind_s !== null && (worst === null || row.behind_s > worst.behind_s)) worst = row;
    }
    const tile = (level, word) => h("button", { type: "button", class: `tile ${level}`, "aria-pressed": String(view.level === level), onclick: () => filter({ level: view.level === level ? "" : level }) }, h("b", null, number(levels[level])), h("span", null, level ? mark(level) : "", word));
    const focused = tiles.contains(document.activeElement) ? [...tiles.children].indexOf(document.activeElement) : -1;
    replace(tiles, tile("problem", "with a problem"), tile("note", "worth a look"), tile("ok", "fine"), levels.unknown ? tile("unknown", "not known") : null,
      h("div", { class: "tile" }, h("b", null, worst ? behind(worst) : "–"), h("span", null, "furthest behind")),
      fleet.status ? h("div", { class: "tile" }, h("b", null, number(fleet.status.topics ?? 0)), h("span", null, `${fleet.status.topics === 1 ? "topic" : "topics"} on ${counted(fleet.status.brokers ?? 0, "broker")}`)) : null);
    if (focused >= 0 && tiles.children[focused]) tiles.children[focused].focus();
  }

  function draw() {
    pending = false;
    const size = height();
    // Paper does not scroll: there every row is drawn, as many as anybody would print.
    const start = paper.matches ? 0 : Math.max(0, Math.floor(scroll.scrollTop / size) - MORE);
    const amount = paper.matches ? PRINTED_MAX : Math.ceil(scroll.clientHeight / size) + 2 * MORE;
    const end = Math.min(rows.length, start + amount);
    while (pool.length < end - start) pool.push(new Row());
    const used = pool.slice(0, end - start);
    used.forEach((one, i) => one.set(rows[start + i], start + i, start + i === selected));
    above.firstChild.style.height = `${start * size}px`;
    below.firstChild.style.height = `${(rows.length - end) * size}px`;
    if (first !== start || body.childElementCount !== used.length + 2) body.replaceChildren(above, ...used.map((one) => one.node), below);
    first = start;
  }

  function select(index) {
    selected = Math.max(0, Math.min(rows.length - 1, index));
    selectedName = rows[selected]?.group || "";
    const size = height(), top = selected * size, head = grid.tHead.offsetHeight;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (top + size + head > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + size + head - scroll.clientHeight;
    draw();
    pool.find((one) => one.row && one.row.group === selectedName && one.node.isConnected)?.name.focus({ preventScroll: true });
  }

  function keys(event) {
    if (event.target.closest("select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === search;
    const step = { ArrowDown: 1, ArrowUp: -1, j: typing ? 0 : 1, k: typing ? 0 : -1 }[event.key];
    if (step) {
      if (typing && event.key === "ArrowUp") return;
      event.preventDefault();
      select(typing ? 0 : selected + step);
    } else if (event.key === "Enter" && typing && rows.length) go("/group", { group: rows[0].group });
    else if (event.key === "Escape" && typing) { search.value = ""; filter({ q: "" }); }
  }

  search.addEventListener("input", () => filter({ q: search.value }));
  state.addEventListener("change", () => filter({ state: state.value }));
  scroll.addEventListener("scroll", () => { if (!pending) { pending = true; requestAnimationFrame(draw); } }, { passive: true });
  document.addEventListener("keydown", keys);
  paper.addEventListener("change", draw);
  const resized = new ResizeObserver(() => { first = -1; draw(); });
  resized.observe(scroll);
  const off = onChange(() => {
    const begun = performance.now();
    refresh();
    performance.measure("fleet-update", { start: begun, end: performance.now() });
  });
  refresh();
  const tick = setInterval(draw, 1000);
  return () => { off(); clearInterval(tick); resized.disconnect(); document.removeEventListener("keydown", keys); paper.removeEventListener("change", draw); };
}

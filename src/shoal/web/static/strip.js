// The time axis of a group: who owned which partition, and when it rebalanced.

import { color, colorAll, h, s } from "./dom.js";
import { clock } from "./format.js";

export const RIGHT = 14, leftOf = (width) => (width < 500 ? 76 : 116);
const ROW = 18, TOP = 26;

export function strip(rows, rebalances, { from, to, width, chosen, onChoose }) {
  const height = TOP + Math.max(1, rows.length) * ROW + 24;
  const LEFT = leftOf(width), letters = LEFT > 99 ? 17 : 10;
  const inner = Math.max(10, width - LEFT - RIGHT);
  const x = (ms) => LEFT + Math.max(0, Math.min(1, (ms - from) / (to - from))) * inner;
  const node = s("svg", { class: "strip", viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": "Who owned which partition; each mark is a rebalance" });
  const labels = [];
  colorAll(rows.flatMap((row) => row.spans));
  rows.forEach((row, i) => {
    const y = TOP + i * ROW;
    const name = `${row.topic}-${row.partition}`;
    node.append(s("text", { x: LEFT - 8, y: y + 12, "text-anchor": "end" }, name.length > letters ? `…${name.slice(1 - letters)}` : name, s("title", null, name)));
    node.append(s("rect", { class: "base", x: LEFT, y: y + 1, width: inner, height: ROW - 3, rx: 3 }));
    for (const [begin, end, member] of row.spans) {
      if (end < from || begin > to) continue;
      const left = x(begin), size = Math.max(1, x(end) - left);
      node.append(s("rect", { class: `f${color(member)}`, x: left, y: y + 1, width: size, height: ROW - 3, rx: 2 }, s("title", null, `${name}: ${member}, ${clock(begin)} to ${clock(end)}`)));
      const fits = Math.floor((size - 8) / 6.2);
      if (fits >= 3) labels.push(s("text", { class: "in", x: left + 5, y: y + 12 }, member.length <= fits ? member : `${member.slice(0, fits - 1)}…`));
    }
  });
  const parts = inner < 400 ? 2 : 4;
  for (let i = 0; i <= parts; i++) {
    const at = from + ((to - from) * i) / parts;
    node.append(s("text", { class: "axis", x: x(at), y: height - 6, "text-anchor": i === 0 ? "start" : i === parts ? "end" : "middle" }, clock(at)));
  }
  for (const one of rebalances) {
    if (!one.is_rebalance || one.at_ms < from || one.at_ms > to) continue;
    const at = x(one.at_ms);
    const open = () => onChoose(one);
    node.append(s("g", { class: `event${chosen === key(one) ? " chosen" : ""}`, role: "button", tabindex: "0", "aria-pressed": String(chosen === key(one)), "aria-label": `Rebalance at ${clock(one.at_ms)}: ${one.cause}`, onclick: open, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } } },
      s("title", null, `${clock(one.at_ms)} ${one.cause}`), s("rect", { x: at - 8, y: 0, width: 16, height: TOP, fill: "transparent" }), s("line", { x1: at, x2: at, y1: 14, y2: height - 20 }), s("circle", { cx: at, cy: 10, r: 5 })));
  }
  node.append(...labels);
  return node;
}

export function key(rebalance) {
  return `${rebalance.generation}@${rebalance.at_ms}`;
}

export function legend(names) {
  return h("ul", { class: "legend" }, names.map((name) => h("li", null, h("i", { class: `f${color(name)}` }), name)));
}

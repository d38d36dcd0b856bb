// The five ways Kafka's groups were rebalanced, on one scenario, and their messages one by one.

import { get, post } from "../api.js";
import { go } from "../app.js";
import { color, h, muted, num, replace, s, section, table, text } from "../dom.js";
import { number } from "../format.js";

const ROWS = [["Stable after", "time_to_stable_ms", "ms"], ["Without a reader, all partitions together", "stopped_partition_s", "s"], ["Partitions that stopped", "stopped_partitions"], ["Partitions that moved", "moved_partitions"], ["Times a partition had two owners", "two_owners"], ["Records read twice", "records_twice"], ["Records lost", "records_lost"], ["Requests", "requests"], ["Notifications of the registry", "notifications"]];

function shown(value, unit) {
  if (value === null || value === undefined) return unit === "ms" ? "never" : "–";
  if (unit === "ms") return `${(value / 1000).toFixed(2)} s`;
  return unit ? `${value.toFixed(1)} ${unit}` : number(value);
}

function timeline(run, width) {
  const left = 84, row = 16, inner = width - left - 10, top = 18;
  const x = (ms) => left + Math.max(0, Math.min(1, ms / run.end_ms)) * inner;
  const node = s("svg", { class: "strip", viewBox: `0 0 ${width} ${top + run.partitions.length * row + 22}`, role: "img", "aria-label": `Who read what under ${run.scheme}` });
  run.partitions.forEach((tp, i) => {
    const y = top + i * row;
    node.append(s("text", { x: left - 6, y: y + 11, "text-anchor": "end" }, tp), s("rect", { class: "base", x: left, y, width: inner, height: row - 3, rx: 2 }));
    for (const [of, begin, end, member, holding] of run.spans) {
      if (of !== tp) continue;
      const size = Math.max(0.5, x(end) - x(begin));
      node.append(s("rect", { class: `f${color(member)}`, x: x(begin), y, width: size, height: row - 3, opacity: holding === "reads" ? 1 : 0.35 }, s("title", null, `${member} ${holding} ${tp}, ${(begin / 1000).toFixed(1)} to ${(end / 1000).toFixed(1)} s`)));
      if (size > member.length * 7 + 8) node.append(s("text", { class: "in", x: x(Math.max(0, begin)) + 4, y: y + 10 }, member));
    }
  });
  for (const [at, words] of run.events) node.append(s("line", { class: "message now", x1: x(at), x2: x(at), y1: 12, y2: top + run.partitions.length * row }), s("text", { x: x(at) + 3, y: 10 }, words));
  for (let i = 0; i <= 4; i++) node.append(s("text", { class: "axis", x: left + (inner * i) / 4, y: top + run.partitions.length * row + 14, "text-anchor": i ? (i === 4 ? "end" : "middle") : "start" }, `${Math.round((run.end_ms * i) / 4000)} s`));
  return node;
}

function stepper(runs) {
  const scheme = h("select", { id: "scheme", onchange: () => { at = 0; draw(); } }, runs.map((run) => h("option", { value: run.scheme, selected: run.scheme === "eager" }, run.scheme)));
  const place = h("div", null), told = h("p", { role: "status" });
  let at = 0;
  const step = (by) => { const run = runs.find((one) => one.scheme === scheme.value); at = Math.max(0, Math.min(run.messages.length - 1, at + by)); draw(); };
  const buttons = h("div", { class: "row" }, h("label", { for: "scheme" }, "Scheme"), scheme, h("button", { type: "button", onclick: () => step(-1) }, "← Back"), h("button", { type: "button", class: "main", onclick: () => step(1) }, "Next message →"), told);

  function draw() {
    const run = runs.find((one) => one.scheme === scheme.value);
    if (!run.messages.length) return replace(place, muted("No messages."));
    const lanes = [...run.authorities, ...run.members].filter((name) => run.messages.some((m) => m[2] === name || m[3] === name)).slice(0, 8);
    const width = Math.max(420, place.clientWidth || 900), first = Math.max(0, at - 9), visible = run.messages.slice(first, at + 1);
    const x = (name) => 70 + Math.max(0, lanes.indexOf(name)) * ((width - 140) / Math.max(1, lanes.length - 1));
    const node = s("svg", { class: "strip", viewBox: `0 0 ${width} ${46 + 10 * 26}`, role: "img", "aria-label": "Messages up to this one" });
    for (const name of lanes) node.append(s("text", { x: x(name), y: 14, "text-anchor": "middle" }, name), s("line", { x1: x(name), x2: x(name), y1: 22, y2: 46 + 10 * 26, stroke: "var(--line)" }));
    visible.forEach((m, i) => {
      const y = 44 + i * 26, now = first + i === at, from = x(m[2]), to = x(m[3]), tip = to > from ? -7 : 7;
      node.append(s("line", { class: `message${now ? " now" : ""}`, x1: from, y1: y, x2: to, y2: y + 8 }), s("polygon", { class: now ? "f5" : "f0", points: `${to},${y + 8} ${to + tip},${y + 3} ${to + tip},${y + 11}` }), s("text", { x: (from + to) / 2, y: y - 2, "text-anchor": "middle" }, m[4]));
    });
    const m = run.messages[at];
    text(told, `${at + 1} of ${run.messages.length}: ${(m[0] / 1000).toFixed(3)} s, ${m[2]} → ${m[3]}: ${m[4]} ${m[5]}`);
    return replace(place, node);
  }
  setTimeout(draw);
  return section("Message by message", buttons, place);
}

export async function show(main, given) {
  const choices = await get("/api/lab");
  const name = given.scenario || "member-crashes";
  const select = h("select", { id: "scenario", onchange: () => go("/lab", { scenario: select.value }) }, choices.scenarios.map((one) => h("option", { value: one.name, selected: one.name === name }, one.name)));
  const place = h("div", { class: "stack" }, muted("running…"));
  replace(main, h("div", { class: "head" }, h("h1", null, "Lab"), h("label", { for: "scenario" }, "Scenario"), select), muted((choices.scenarios.find((one) => one.name === name) || {}).description || ""), place);
  const data = await post("/api/lab/run", { scenario: name });
  replace(place, section("What each scheme cost", table("Costs by scheme", [{ head: "Cost", cell: ([word]) => word }, ...data.runs.map((run) => (num(run.scheme, ([, field, unit]) => shown(run.metrics[field], unit))))], ROWS)),
    section("Who read what", data.runs.map((run) => [h("h3", null, run.scheme, " ", h("span", { class: "muted" }, `${run.since}: ${run.title}`)), timeline(run, Math.max(320, main.clientWidth - 90))])), stepper(data.runs));
}

// Rebalances of all groups as they happen; many in a row are one storm.

import { get } from "../api.js";
import { h, link, redraw, replace, section, text } from "../dom.js";
import { clock, counted, duration, moment, number, who } from "../format.js";
import { fleet, onChange } from "../live.js";

function line(one) {
  const took = [];
  if (one.moved) took.push(`${number(one.moved)} moved`);
  if (one.duration_ms !== null) took.push(`took ${duration(one.duration_ms / 1000)}`);
  if (one.pause_ms !== null) took.push(`pause ${duration(one.pause_ms / 1000)}`);
  return h("div", { class: "line" }, h("span", { class: "muted" }, moment(one.at_ms)), link("/group", { group: one.group }, one.group), h("span", null, one.cause, one.certain ? "" : h("span", { class: "muted" }, " (most likely)"), h("span", { class: "sub" }, who(one))), h("span", { class: "muted num" }, took.join(" · ")));
}

function causes(items) {
  const counts = new Map();
  for (const one of items) counts.set(one.cause, (counts.get(one.cause) || 0) + 1);
  const later = (cause) => cause.startsWith("second round");
  return [...counts].sort((a, b) => later(a[0]) - later(b[0]) || b[1] - a[1]).slice(0, 3).map(([cause, n]) => `${cause} (${n})`).join(", ");
}

function storm(one, open, remember) {
  const newest = one.items[0], oldest = one.items.at(-1);
  const key = one.group;
  const node = h("details", { open: open.has(key), ontoggle: () => remember(key, node.open) }, h("summary", null, h("span", { class: "chip storm" }, `storm: ${counted(one.items.length, "rebalance")}`), " ", h("b", null, one.group), h("span", { class: "muted" }, ` in ${duration(Math.max(1, (newest.at_ms - oldest.at_ms) / 1000))}, until ${clock(newest.at_ms)} · ${causes(one.items)}`)), one.items.map(line));
  return node;
}

export async function show(main) {
  const feed = h("ul", { class: "feed" }), blind = h("p", { class: "notice note", hidden: true }), count = h("p", { class: "muted", role: "status" });
  const open = new Set();
  let isFirst = true;
  const remember = (key, is) => { if (is) open.add(key); else open.delete(key); };
  replace(main, h("div", { class: "head" }, h("h1", null, "Rebalances"), count), blind, section("Latest", feed));
  let seen = -1, busy = false;

  async function update() {
    const now = fleet.status ? fleet.status.rebalances : 0;
    if (busy || now === seen) return;
    busy = true;
    try {
      const data = await get("/api/rebalances");
      seen = now;
      blind.hidden = !data.blind;
      text(blind, `Rebalances cannot be known: ${data.blind}`);
      if (isFirst && data.feed[0]?.is_storm) open.add(data.feed[0].group);
      isFirst = false;
      const total = data.feed.reduce((sum, one) => sum + one.items.length, 0);
      text(count, `${counted(total, "rebalance")} on record`);
      redraw(main, () => replace(feed, data.feed.length ? data.feed.map((one) => h("li", null, one.is_storm ? storm(one, open, remember) : line(one.items[0]), !one.is_storm && one.items.length > 1 ? one.items.slice(1).map(line) : null)) : h("li", { class: "muted" }, "No rebalance is on record. They appear here as they happen.")));
    } finally {
      busy = false;
    }
  }
  await update();
  return onChange(update);
}

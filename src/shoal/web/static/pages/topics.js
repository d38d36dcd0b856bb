// Every topic: how much is in it and who reads it.

import { get } from "../api.js";
import { h, link, num, replace, section, table, text } from "../dom.js";
import { bytes, counted, number } from "../format.js";

export async function show(main, given) {
  const data = await get("/api/topics");
  const view = { q: given.q || "", internal: false };
  const place = h("div", null), count = h("p", { class: "muted", role: "status" });
  const search = h("input", { type: "search", placeholder: "Search topics", "aria-label": "Search topics", value: view.q, oninput: () => { view.q = search.value; draw(); } });
  const internal = h("input", { type: "checkbox", id: "internal", onchange: () => { view.internal = internal.checked; draw(); } });
  replace(main, h("div", { class: "head" }, h("h1", null, "Topics")), h("div", { class: "filters" }, search, h("div", { class: "row checks" }, h("label", { for: "internal" }, internal, " internal ones too")), count), section("All topics", data.sizes_unknown ? h("p", { class: "notice note" }, `Sizes on disk are not known: ${data.sizes_unknown}`) : null, place));

  function draw() {
    const rows = data.topics.filter((one) => (view.internal || !one.internal) && one.topic.toLowerCase().includes(view.q.toLowerCase()));
    text(count, counted(rows.length, "topic"));
    replace(place, table("Topics", [
      { head: "Topic", cell: (t) => link("/topic", { topic: t.topic }, t.topic), key: (t) => t.topic },
      num("Partitions", (t) => [number(t.partitions), t.leaderless ? h("span", { class: "bad" }, ` (${t.leaderless} without a leader)`) : ""], (t) => -t.partitions),
      num("Offsets in the log", (t) => number(t.records), (t) => -Number(t.records)),
      num("On disk", (t) => bytes(t.bytes), (t) => -Number(t.bytes)),
      num("Groups", (t) => number(t.groups), (t) => -t.groups),
    ], rows, { sort: 0, empty: "no topic matches" }));
  }
  draw();
}

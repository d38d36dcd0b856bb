// One group: how far behind, what happened, who owns what, and what to do.

import { get } from "../api.js";
import { failed } from "../app.js";
import { lagChart, ready } from "../chart.js";
import { h, link, mark, muted, num, redraw, replace, section, table } from "../dom.js";
import { behind, clock, counted, duration, moment, number, ranges, who } from "../format.js";
import { fleet, onChange } from "../live.js";
import { key, legend, strip } from "../strip.js";

const SPANS = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["all", 0]];

export async function show(main, given) {
  const group = given.group || "";
  const view = { span: 900, unit: "behind_s", chosen: "" }, keep = {};
  let [data] = await Promise.all([get("/api/group", { group }), ready]);
  let chart = null, busy = false, version = data.version, drawn = "";

  const head = h("div", { class: "head" });
  const facts = h("dl", { class: "facts" });
  const findings = h("ul", { class: "findings" });
  const timeline = h("div", { class: "timeline" });
  const lagPlace = h("div", null), stripPlace = h("div", null), legendPlace = h("div", null), detail = h("div", { "aria-live": "polite" });
  const members = h("div", null), partitions = h("div", null), rebalances = h("div", null);
  const segments = (name, choices, get_, set) => h("div", { class: "segments", role: "group", "aria-label": name }, choices.map(([word, value]) => {
    const one = h("button", { type: "button", "aria-pressed": String(get_() === value), onclick: () => { set(value); [...one.parentNode.children].forEach((b) => b.setAttribute("aria-pressed", String(b === one))); draw(); } }, word);
    return one;
  }));
  const controls = h("div", { class: "row" }, segments("Unit", [["seconds", "behind_s"], ["records", "lag"]], () => view.unit, (v) => { view.unit = v; }), segments("Time shown", SPANS, () => view.span, (v) => { view.span = v; }));
  const what = section("What happened", h("div", { class: "row" }, controls), timeline, detail);
  timeline.append(lagPlace, stripPlace, legendPlace);
  replace(main, head, section("What to do", findings), what, section("Members", members), section("Partitions", partitions), section("Rebalances", rebalances));

  function draw() {
    const row = data.row, known = data.about;
    replace(head, h("h1", null, group), mark(row.level), h("span", { class: `chip state-${row.state}` }, row.problem || row.state), facts,
      h("div", { class: "row" }, link("/what-if", { group }, "What if…"), link("/reset", { group }, "Reset offsets…")));
    const pairs = [["behind", behind(row)], ["lag", row.lag === null ? "–" : counted(row.lag, "record")], ["members", number(row.members)], ["protocol", known.protocol + (known.protocol === "consumer" ? " (KIP-848)" : "")], ["assignor", known.assignor || "–"], ["coordinator", `broker ${known.coordinator}`]];
    if (known.group_epoch !== null && known.group_epoch !== undefined) pairs.push(["group epoch", number(known.group_epoch)], ["target of epoch", number(known.assignment_epoch)]);
    replace(facts, pairs.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
    replace(findings, data.findings.length ? data.findings.map((one) => h("li", null, mark(one.level), h("div", null, h("p", null, one.what), one.advice ? muted(`→ ${one.advice}`) : null))) : h("li", null, mark("unknown"), h("p", null, `The group could not be looked at: ${row.problem || "no answer"}`)));
    drawTimeline();
    drawTables();
  }

  function drawTimeline() {
    const to = data.now_ms;
    const known = [...Object.values(data.lag).map((one) => one.at_ms[0]), ...data.strip.flatMap((row) => row.spans.map((span) => span[0]))].filter((at) => at);
    const oldest = known.length ? Math.min(...known) : to - 60000;
    const from = Math.min(to - 30000, view.span ? Math.max(to - view.span * 1000, oldest) : oldest);
    const width = Math.max(280, timeline.clientWidth || 900);
    if (chart) chart.destroy();
    chart = null;
    replace(lagPlace);
    if (Object.keys(data.lag).length) chart = lagChart(lagPlace, data.lag, { from, to, width, unit: view.unit });
    else lagPlace.append(muted("Nothing is committed, so there is no lag to show."));
    if (data.blind) {
      replace(stripPlace, h("p", { class: "notice note" }, `Who owned what, and why it rebalanced, cannot be known: ${data.blind}`));
      replace(legendPlace);
      return;
    }
    replace(stripPlace, data.strip.length ? strip(data.strip, data.rebalances, { from, to, width, chosen: view.chosen, onChoose: choose }) : muted("No rebalance of this group is on record."));
    if (data.strip_left_out) stripPlace.append(muted(`${counted(data.strip_left_out, "more partition")} not drawn.`));
    const shown = new Set(data.strip.flatMap((row) => row.spans.filter((one) => one[1] >= from).map((one) => one[2])));
    replace(legendPlace, legend([...shown]));
    drawDetail();
  }

  function choose(one) {
    view.chosen = view.chosen === key(one) ? "" : key(one);
    redraw(main, drawTimeline);
  }

  function drawDetail() {
    const one = data.rebalances.find((each) => key(each) === view.chosen);
    const now = JSON.stringify([one, data.strip.length > 0]);
    if (now === drawn) return;  // it is read aloud when it changes
    drawn = now;
    if (!one) return replace(detail, data.strip.length ? muted("Choose a mark above to see its phases, who stood still, and what moved.") : null);
    const ms = (value) => (value === null ? "not on record" : duration(value / 1000));
    const isNew = one.protocol === "consumer";
    const rows = [["When", moment(one.at_ms)], ["Cause", one.cause + (one.certain ? "" : " (most likely)")], ["Who", who(one) || "nobody came or went"], [isNew ? "Epoch" : "Generation", number(one.generation)], ["Moved", `${counted(one.moved, "partition")} of ${number(one.partitions)}`], ["Longest without a commit", ms(one.pause_ms)]];
    if (one.unassigned) rows.push(["Taken away, not given yet", counted(one.unassigned, "partition")]);
    if (one.missed) rows.push(["Not on record before it", counted(one.missed, "generation")]);
    const took = (p) => (p.begin_ms === null || p.end_ms === null ? (p.end_ms === null && p.waits_for.length && !p.note ? "goes on" : "not on record") : `${p.at_least ? "≥ " : ""}${duration((p.end_ms - p.begin_ms) / 1000)}`);
    const columns = [{ head: "Member", cell: (m) => [m.member, m.is_gone ? h("span", { class: "muted" }, " (gone)") : ""] }, num("Has", (m) => number(m.has)), num("Got", (m) => number(m.gets)), num("Gave up", (m) => number(m.gives)), num("Stood still", (m) => (m.is_gone ? null : ms(m.still_ms)))];
    if (isNew) columns.push(num("Changed over after", (m) => (m.is_gone ? null : ms(m.done_ms))));
    const left = one.members - one.by_member.filter((m) => !m.is_gone).length;
    return replace(detail, h("h3", null, `Rebalance at ${clock(one.at_ms)}`), h("dl", { class: "kv" }, rows.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
      h("h3", null, "Phases"), table("Phases", [{ head: "Phase", cell: (p) => [p.name, p.note ? h("span", { class: "sub wrap" }, p.note) : ""] }, num("From", (p) => (p.begin_ms === null ? null : clock(p.begin_ms))), num("To", (p) => (p.end_ms === null ? null : clock(p.end_ms))), num("Took", took), { head: "Waited for", cell: (p) => p.waits_for.join(", ") || null }], one.phases, { empty: "none: no member is left" }),
      h("h3", null, "Who stood still"), table("Who stood still", columns, one.by_member, { empty: "no member is left" }), muted(left > 0 ? `${counted(left, "more member")}. ` : "", "Stood still: the longest that one of its partitions was without a commit around this. Members that commit rarely look still for longer than they were."),
      h("h3", null, "What moved"), one.moves.length ? table("What moved", [{ head: "Partition", cell: (m) => m.partition }, { head: "From", cell: (m) => m.from || "nobody" }, { head: "To", cell: (m) => m.to || "nobody" }], one.moves) : muted("Nothing moved."), one.moves_left_out ? muted(`${counted(one.moves_left_out, "more move")}`) : null);
  }

  function drawTables() {
    const isNew = data.about.protocol === "consumer";
    const columns = [{ head: "Member", cell: (m) => h("span", { title: m.member_id }, m.name), key: (m) => m.name }, { head: "Host", cell: (m) => m.host, key: (m) => m.host }, { head: "Static as", cell: (m) => m.instance }, { head: "Reads", cell: (m) => h("span", { class: "mono" }, ranges(m.partitions) || "nothing") }, num("Partitions", (m) => number(m.count), (m) => m.count), num("Lag", (m) => number(m.lag), (m) => Number(m.lag))];
    if (isNew) columns.push(num("Epoch", (m) => number(m.epoch)), { head: "Still to do", cell: (m) => [m.gives_up.length ? `gives up ${ranges(m.gives_up)} ` : "", m.waits_for.length ? `waits for ${ranges(m.waits_for)}` : ""].join("") || "nothing" });
    replace(members, table("Members", columns, data.members, { keep, empty: data.about.is_joined === false ? "no members, and never had: its offsets are committed from outside" : "no members now" }));
    replace(partitions, table("Partitions", [{ head: "Partition", cell: (p) => `${p.topic}-${p.partition}`, key: (p) => p.topic }, num("Committed", (p) => (p.committed === null ? "never" : number(p.committed))), num("End", (p) => number(p.end)), num("Lag", (p) => number(p.lag), (p) => -Number(p.lag)), num("Behind", (p) => behind(p), (p) => -p.behind_s), { head: "Read by", cell: (p) => p.member || "nobody" }], data.partitions, { keep, empty: "nothing committed" }));
    replace(rebalances, data.blind ? h("p", { class: "notice note" }, data.blind) : table("Rebalances", [{ head: "When", cell: (r) => moment(r.at_ms) }, { head: "Cause", cell: (r) => r.cause + (r.certain ? "" : " (most likely)") }, { head: "Who", cell: (r) => who(r) || "–" }, num("Moved", (r) => number(r.moved)), num("Took", (r) => (r.duration_ms === null ? null : duration(r.duration_ms / 1000))), num("Pause", (r) => (r.pause_ms === null ? null : duration(r.pause_ms / 1000))), num("Generation", (r) => number(r.generation))], data.rebalances, { empty: "none on record" }));
  }

  async function update() {
    if (busy || fleet.version === version || document.visibilityState !== "visible") return;
    busy = true;
    version = fleet.version;
    try {
      data = await get("/api/group", { group });
      redraw(main, draw);
    } catch (error) {
      if (error.status === 404) failed(new Error(`${group} is gone: the cluster does not list it any more.`));
    } finally {
      busy = false;
    }
  }

  draw();
  const off = onChange(update);
  let width = timeline.clientWidth;
  const resized = new ResizeObserver(() => { if (Math.abs(timeline.clientWidth - width) > 2) { width = timeline.clientWidth; drawTimeline(); } });
  resized.observe(timeline);
  const media = ["print", "(prefers-color-scheme: dark)"].map((one) => matchMedia(one));
  for (const one of media) one.addEventListener("change", drawTimeline);
  return () => { off(); resized.disconnect(); for (const one of media) one.removeEventListener("change", drawTimeline); if (chart) chart.destroy(); };
}

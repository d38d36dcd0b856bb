// Where a reset would take a group, partition by partition; and, if this server may, doing it.

import { post } from "../api.js";
import { about, go } from "../app.js";
import { h, muted, num, replace, section, table, text } from "../dom.js";
import { counted, moment, number } from "../format.js";
import { onChange } from "../live.js";
import { pickGroup } from "./what-if.js";

// An offset, and when the record there was written.
function place(row, offset, ms) {
  if (offset === null) return "never committed";
  const at = BigInt(offset);
  return [number(offset), h("span", { class: "sub" }, ms !== null ? moment(ms) : at >= BigInt(row.end) ? "the end" : at < BigInt(row.start) ? "deleted since" : "time not known")];
}

export async function show(main, given) {
  const group = given.group || "";
  const [select, fillIn] = pickGroup(group, () => true, (name) => go("/reset", { group: name }));
  const to = h("select", { id: "to" }, [["earliest", "the beginning"], ["latest", "the end"], ["time", "a time, or how long ago"], ["offset", "an offset"]].map(([v, w]) => h("option", { value: v }, w)));
  const exactly = h("input", { id: "exactly", placeholder: "15m or 2026-01-31T12:00", size: "24", disabled: true });
  const topic = h("input", { id: "topics", placeholder: "all it has committed in" });
  const problem = h("p", { class: "bad", role: "alert" }), result = h("div", null);
  to.addEventListener("change", () => { exactly.disabled = !["time", "offset"].includes(to.value); if (!exactly.disabled) exactly.focus(); });
  const field = (id, word, node) => h("div", { class: "field" }, h("label", { for: id }, word), node);
  replace(main, h("div", { class: "head" }, h("h1", null, "Reset offsets")),
    muted(about.value.allow_writes ? "A preview first. Only groups without members can be reset." : "This dashboard only looks: previews work, and resetting needs a start with --allow-writes."),
    section("Where to", h("form", { class: "row ends", onsubmit: preview }, field("group-choice", "Group", select), field("to", "To", to), field("exactly", "Time or offset", exactly), field("topics", "Topics, with spaces between", topic), h("button", { class: "main", type: "submit" }, "Preview"))), problem, result);

  async function preview(event) {
    event.preventDefault();
    replace(result);
    try {
      const topics = topic.value.trim() ? topic.value.trim().split(/\s+/) : null;
      const data = await post("/api/reset/preview", { group: select.value, to: exactly.disabled ? to.value : exactly.value.trim(), topics });
      text(problem, "");
      showPreview(data);
    } catch (error) {
      text(problem, error.message);
    }
  }

  function showPreview(data) {
    const sum = (name) => data.rows.reduce((total, row) => total + BigInt(row[name]), 0n);
    const typed = h("input", { id: "confirm", autocomplete: "off", spellcheck: "false" });
    const button = h("button", { class: "danger", type: "submit", disabled: true }, "Reset");
    typed.addEventListener("input", () => { button.disabled = typed.value !== data.group; });
    const confirm = data.obstacle ? h("p", { class: "notice note" }, `This cannot be done now: ${data.obstacle}.`) : h("form", { class: "row", onsubmit: (event) => apply(event, data, typed.value) }, h("label", { for: "confirm" }, "Type the name of the group to reset it: ", h("code", null, data.group)), typed, button);
    replace(result, section(`Preview: ${data.group}`,
      h("p", null, `${counted(data.rows.length, "partition")}: ${number(String(sum("skipped")))} records would be skipped, ${number(String(sum("read_again")))} read again.`),
      table("Preview by partition", [{ head: "Partition", cell: (r) => `${r.topic}-${r.partition}` }, num("From", (r) => place(r, r.from, r.from_ms)), num("To", (r) => place(r, r.to, r.to_ms)), num("Skipped", (r) => number(r.skipped)), num("Read again", (r) => number(r.read_again)), num("In the log", (r) => `${number(r.start)} to ${number(r.end)}`)], data.rows), muted(data.times_unknown ? `Some times are not known: ${data.times_unknown}.` : "A time is when the record was written that would be read next."), confirm));
  }

  async function apply(event, data, confirmed) {
    event.preventDefault();
    try {
      const done = await post("/api/reset", { plan: data.plan, confirm: confirmed });
      replace(result, h("p", { class: "notice ok", role: "status" }, `${done.group} was reset in ${counted(done.partitions, "partition")}.`));
    } catch (error) {
      text(problem, error.message);
    }
  }
  return onChange(() => { if (document.activeElement !== select) { const kept = select.value; fillIn(); if (kept) select.value = kept; } });
}

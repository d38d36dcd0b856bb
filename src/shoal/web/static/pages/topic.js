// One topic: its partitions, its readers, and a look at its records within a budget.

import { get, post } from "../api.js";
import { h, link, muted, num, replace, section, table, text } from "../dom.js";
import { behind, bytes, counted, moment, number } from "../format.js";

const OPERATORS = ["contains", "is", "is not", "begins with"];

function brief(field) {
  if (field.kind === "null") return h("span", { class: "muted" }, "null");
  return field.text.slice(0, 300);
}

function whole(name, field) {
  if (field.kind === "null") return muted(`${name}: null`);
  const note = [field.kind === "hex" ? "bytes" : field.kind, bytes(field.bytes), field.cut ? "only the beginning is shown" : ""].filter(Boolean).join(" · ");
  return [h("h3", null, name, " ", h("span", { class: "muted" }, note)), h("pre", { class: "value", tabindex: "0" }, field.pretty ?? field.text)];
}

function record(one) {
  return h("details", { class: "record" }, h("summary", null, h("span", { class: "muted" }, moment(one.at_ms)), h("span", { class: "mono" }, `${one.partition} @ ${number(one.offset)}`), h("span", { class: "mono" }, brief(one.key)), h("span", { class: "mono" }, brief(one.value))),
    one.headers.length ? [h("h3", null, "Headers"), h("dl", { class: "kv" }, one.headers.map((header) => [h("dt", null, header.name), h("dd", { class: "mono" }, brief(header))]))] : null,
    whole("Key", one.key), whole("Value", one.value));
}

export async function show(main, given) {
  const topic = given.topic || "";
  const data = await get("/api/topic", { topic });
  const filters = h("div", { class: "field" });
  const order = h("select", { "aria-label": "Order" }, h("option", { value: "newest" }, "Newest first"), h("option", { value: "oldest" }, "Oldest first"));
  const partition = h("select", { "aria-label": "Partition" }, h("option", { value: "" }, "Every partition"), data.partitions.map((one) => h("option", { value: one.partition }, `Partition ${one.partition}`)));
  const found = h("div", null), told = h("p", { class: "muted", role: "status" });
  const go = h("button", { class: "main", type: "submit" }, "Look");

  function addFilter() {
    const row = h("div", { class: "row" },
      h("input", { "aria-label": "Field", value: "value", list: "fields", size: "16" }), h("select", { "aria-label": "Operator" }, OPERATORS.map((one) => h("option", null, one))), h("input", { "aria-label": "Wanted", placeholder: "text" }),
      h("button", { type: "button", onclick: () => row.remove() }, "Remove"));
    filters.append(row);
    row.querySelector("input").focus();
  }

  async function look(event) {
    event?.preventDefault();
    go.disabled = true;
    text(told, "looking…");
    try {
      const chosen = [...filters.children].map((row) => {
        const [field, operator, value] = row.querySelectorAll("input, select");
        return { field: field.value, operator: operator.value, value: value.value };
      });
      const answer = await post("/api/records", { topic, order: order.value, partition: partition.value === "" ? null : Number(partition.value), filters: chosen });
      const scope = answer.complete ? `all ${number(answer.total)} offsets were looked at` : `${number(answer.scanned)} of ${number(answer.total)} offsets were looked at: ${answer.stopped}`;
      text(told, `${counted(answer.records.length, "record")} shown; ${scope}.`);
      replace(found, answer.records.length ? [h("div", { class: "record names", "aria-hidden": "true" }, ["Written", "Partition @ offset", "Key", "Value"].map((one) => h("span", null, one))), answer.records.map(record)] : muted(answer.complete ? "No record matches." : "No record matches in what was looked at; there may be some in the rest."));
    } catch (error) {
      text(told, error.message);
    } finally {
      go.disabled = false;
    }
  }

  const form = h("form", { onsubmit: look }, h("datalist", { id: "fields" }, ["key", "value", "header:NAME", "json:PATH"].map((one) => h("option", { value: one }))), filters, h("div", { class: "row" }, order, partition, h("button", { type: "button", onclick: addFilter }, "Add a filter"), go, told));
  replace(main, h("div", { class: "head" }, h("h1", null, topic), data.internal ? h("span", { class: "chip" }, "internal") : null),
    h("div", { class: "two" },
      section("Partitions", data.sizes_unknown ? h("p", { class: "notice note" }, `Sizes are not known: ${data.sizes_unknown}`) : null, table("Partitions", [
        { head: "Partition", cell: (p) => String(p.partition), key: (p) => p.partition }, { head: "Leader", cell: (p) => (p.leader === null ? h("span", { class: "bad" }, "none") : `broker ${p.leader}`) },
        { head: "In sync", cell: (p) => `${p.in_sync.length} of ${p.replicas.length}` }, num("From", (p) => number(p.start)), num("To", (p) => number(p.end)), num("On disk", (p) => bytes(p.bytes))], data.partitions), data.left_out ? muted(`${number(data.left_out)} more`) : null),
      section("Who reads it", table("Groups", [{ head: "Group", cell: (g) => link("/group", { group: g.group }, g.group), key: (g) => g.group }, { head: "State", cell: (g) => h("span", { class: `chip state-${g.state}` }, g.state) }, num("Lag", (g) => number(g.lag), (g) => -Number(g.lag)), num("Behind", (g) => behind(g), (g) => -g.behind_s)], data.groups, { empty: "no group has committed in it" }))),
    section("Records", form, found));
  await look();
}

// What a change would move and stop, for every assignor, before it is made.

import { get, post } from "../api.js";
import { go } from "../app.js";
import { h, muted, num, replace, section, table, text } from "../dom.js";
import { counted, number } from "../format.js";
import { fleet, onChange } from "../live.js";

const CELLS_MAX = 1200;

export function pickGroup(current, wanted, choose) {
  const select = h("select", { id: "group-choice", onchange: () => choose(select.value) });
  const fillIn = () => {
    const names = [...fleet.rows.values()].filter(wanted).map((row) => row.group).sort();
    if (current && !names.includes(current)) names.unshift(current);
    replace(select, h("option", { value: "" }, "choose a group"), names.map((name) => h("option", { value: name, selected: name === current }, name)));
  };
  fillIn();
  return [select, fillIn];
}

function matrix(outcome) {
  const all = [...new Set([...Object.values(outcome.before), ...Object.values(outcome.after)].flat().map(([topic, n]) => `${topic}\u0000${n}`))].map((one) => one.split("\u0000")).sort((a, b) => (a[0] === b[0] ? a[1] - b[1] : a[0] < b[0] ? -1 : 1));
  const names = [...new Set([...Object.keys(outcome.before), ...Object.keys(outcome.after)])];
  if (all.length * names.length > CELLS_MAX) return muted(`${counted(names.length, "member")} by ${counted(all.length, "partition")} are too many cells to draw.`);
  const topics = [...all.reduce((counts, [topic]) => counts.set(topic, (counts.get(topic) || 0) + 1), new Map())];
  const has = (side, name, [topic, n]) => (side[name] || []).some(([t, m]) => t === topic && m === Number(n));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Members by partitions, ${outcome.assignor}` }, h("table", { class: "matrix" }, h("caption", { class: "unseen" }, "Members by partitions: ● keeps, + gets, − gives up"),
    h("thead", null, h("tr", null, h("th", { scope: "col", rowspan: "2" }, h("span", { class: "unseen" }, "Member")), topics.map(([topic, n]) => h("th", { scope: "colgroup", colspan: n, class: "topic" }, topic))), h("tr", null, all.map(([topic, n]) => h("th", { scope: "col", title: `${topic}-${n}` }, h("span", { class: "unseen" }, topic), n)))),
    h("tbody", null, names.map((name) => h("tr", null, h("th", { scope: "row" }, name), all.map((tp) => {
      const old = has(outcome.before, name, tp), now = has(outcome.after, name, tp);
      const [cls, sign, word] = old && now ? ["has", "●", "keeps"] : now ? ["has came", "+", "gets"] : old ? ["went", "−", "gives up"] : ["", "", ""];
      return h("td", { class: cls, title: word ? `${name} ${word} ${tp.join("-")}` : null }, sign);
    }))))));
}

export async function show(main, given) {
  const group = given.group || "";
  const [select, fillIn] = pickGroup(group, (row) => row.members > 0, (name) => go("/what-if", { group: name }));
  const result = h("div", { class: "stack" });
  const problem = h("p", { class: "bad", role: "alert" });
  replace(main, h("div", { class: "head" }, h("h1", null, "What if"), h("label", { for: "group-choice" }, "Group"), select), muted("The group as it is now goes through the planner. Nothing is changed."), problem, result);
  const off = onChange(fillIn);
  if (!group) return off;

  let now = null;
  try {
    now = await post("/api/what-if", { group });
  } catch (error) {
    text(problem, error.message);
    return off;
  }
  const join = h("input", { type: "number", min: "0", max: "50", value: "1", id: "join" });
  const leaving = now.members.map((name) => h("input", { type: "checkbox", value: name, id: `leave-${name}` }));
  const sizes = Object.entries(now.topics).map(([name, n]) => [name, h("input", { type: "number", min: "1", max: "2000", value: n, id: `size-${name}` })]);
  const protocol = h("select", { id: "protocol" }, [["", `as it is (${now.protocol})`], ["classic", "classic: a member assigns"], ["consumer", "consumer: the broker assigns (KIP-848)"]].map(([v, w]) => h("option", { value: v }, w)));
  const assignor = h("select", { id: "assignor" }, [["", "compare all"], ...["range", "roundrobin", "sticky", "cooperative-sticky"].map((one) => [one, `change to ${one}`])].map(([v, w]) => h("option", { value: v }, w)));
  const restart = h("select", { id: "restart" }, [["", "nobody restarts"], ["dynamic", "all restart one by one"], ["static", "all restart one by one, as static members"]].map(([v, w]) => h("option", { value: v }, w)));
  const field = (id, word, node) => h("div", { class: "field" }, h("label", { for: id }, word), node);
  const outcomes = h("div", { class: "stack" });
  const form = h("form", { class: "row ends", onsubmit: plan }, field("join", "Members that join", join), leaving.length <= 12 ? h("fieldset", { class: "field" }, h("legend", null, "Members that leave"), h("div", { class: "row checks" }, leaving.map((one) => h("label", { for: one.id }, one, ` ${one.value}`)))) : null,
    sizes.slice(0, 6).map(([name, node]) => field(node.id, `Partitions of ${name}`, node)), field("protocol", "Protocol", protocol), field("assignor", "Assignor", assignor), field("restart", "Restart", restart), h("button", { class: "main", type: "submit" }, "Plan it"));
  replace(result, section("The change", form), outcomes);

  async function plan(event) {
    event?.preventDefault();
    const partitions = Object.fromEntries(sizes.filter(([name, node]) => Number(node.value) !== now.topics[name]).map(([name, node]) => [name, Number(node.value)]));
    try {
      const data = await post("/api/what-if", { group, join: Number(join.value), leave: leaving.filter((one) => one.checked).map((one) => one.value), partitions, protocol: protocol.value || null, assignor: assignor.value || null, restart: restart.value || null });
      text(problem, "");
      const least = Math.min(...data.outcomes.map((one) => one.stopped));
      const load = (one, side) => { const l = one.loads[side].partitions; return l.minimum === l.maximum ? number(l.maximum) : `${number(l.minimum)} to ${number(l.maximum)}`; };
      replace(outcomes, section("What it means", h("p", null, data.changes.join("; then ") || "no change"), table("Outcomes", [
        { head: "Assignor", cell: (o) => [o.assignor, " ", o.assignor === data.assignor ? h("span", { class: "chip" }, "now") : "", " ", o.stopped === least ? h("span", { class: "chip state-Stable" }, "stops least") : ""] }, { head: "Kind", cell: (o) => o.protocol.toLowerCase() }, num("Rebalances", (o) => number(o.rebalances)), num("Moved", (o) => number(o.moved), (o) => o.moved), num("Stopped", (o) => number(o.stopped), (o) => o.stopped), num("Per member, before", (o) => load(o, "before")), num("Per member, after", (o) => load(o, "after"))], data.outcomes)),
      h("div", { class: "two four" }, data.outcomes.map((one) => section(`${one.assignor}`, matrix(one)))), muted("● keeps   + gets   − gives up"));
    } catch (error) {
      text(problem, error.message);
    }
  }
  await plan();
  return off;
}

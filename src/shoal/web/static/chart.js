// Lag over time, by uPlot; the strip below has the same edges.

import { clock } from "./format.js";
import { leftOf, RIGHT } from "./strip.js";

// uPlot holds up no page that draws without it.
export const ready = new Promise((done) => (document.readyState === "complete" ? done() : window.addEventListener("load", done)));

export function lagChart(place, series, { from, to, width, unit }) {
  const names = Object.keys(series);
  const times = [...new Set(names.flatMap((name) => series[name].at_ms))].sort((a, b) => a - b);
  const columns = names.map((name) => {
    const one = series[name];
    const known = new Map(one.at_ms.map((at, i) => [at, Number(one[unit][i])]));
    return times.map((at) => (known.has(at) ? known.get(at) : null));
  });
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--muted").trim(), line = style.getPropertyValue("--line").trim();
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
  const shown = (value) => (unit === "behind_s" ? `${value} s` : new Intl.NumberFormat("en-US", { notation: "compact" }).format(value));
  const told = (_, value) => (value === null || value === undefined ? "–" : shown(value));
  const options = {
    width, height: 190, padding: [10, RIGHT, 0, 0],
    cursor: { drag: { x: false, y: false } },
    legend: { live: true },
    // The last values, until somebody points at others.
    hooks: { ready: [(u) => u.setLegend({ idx: times.length - 1 })] },
    scales: { x: { time: true, range: [from / 1000, to / 1000] }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.08)] } },
    axes: [{ ...axis, size: 26, space: width < 500 ? 60 : 90, values: (_, values) => values.map((at) => clock(at * 1000)) }, { ...axis, size: leftOf(width), values: (_, values) => values.map(shown) }],
    series: [{ label: "time", value: (_, at) => (at ? clock(at * 1000) : "–") }, ...names.map((name, i) => ({ label: name, value: told, stroke: style.getPropertyValue(`--c${i % 10}`).trim(), width: 1.75, spanGaps: true, points: { show: times.length < 3 }, dash: i % 3 === 1 ? [6, 4] : i % 3 === 2 ? [2, 3] : [] }))],
  };
  return new window.uPlot(options, [times.map((at) => at / 1000), ...columns], place);
}

// Numbers, times and partitions as people read them.

const grouped = new Intl.NumberFormat("en-US");

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return grouped.format(BigInt(value));
  return grouped.format(value);
}

export function compact(value) {
  const n = Number(value);
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (n >= size) return `${(n / (unit === "k" ? 1e3 : size)).toFixed(1)} ${unit}`;
  }
  return number(value);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

export function behind(row) {
  return row.behind_s === null ? "–" : (row.at_least ? "≥ " : "") + duration(row.behind_s);
}

export function ago(ms, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - ms) / 1000));
  return seconds ? `${seconds < 10 ? `${seconds} s` : duration(seconds)} ago` : "just now";
}

const two = (n) => String(n).padStart(2, "0");
export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
export function moment(ms) {
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return day === today() ? clock(ms) : `${day} ${clock(ms)}`;
}
function today() {
  const at = new Date();
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let n = Number(value);
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (n < 1024 || unit === "TiB") return `${unit === "B" ? n : n.toFixed(1)} ${unit}`;
    n /= 1024;
  }
  return "";
}

export function counted(n, word, shown = number) {
  return `${shown(n)} ${word}${Number(n) === 1 ? "" : "s"}`;
}

// [["orders", [0,1,2,5]]] → "orders 0–2,5"
export function ranges(topics) {
  return topics.map(([topic, numbers]) => {
    const parts = [];
    for (let i = 0; i < numbers.length; i++) {
      const start = numbers[i];
      while (numbers[i + 1] === numbers[i] + 1) i++;
      parts.push(start === numbers[i] ? `${start}` : `${start}–${numbers[i]}`);
    }
    return `${topic} ${parts.join(",")}`;
  }).join("  ");
}

export function who(rebalance) {
  const parts = [];
  for (const [word, sign] of [["joined", "+"], ["restarted", "↻"], ["left", "−"], ["expired", "✝"], ["gone", "−"]]) {
    for (const name of rebalance[word]) parts.push(`${sign} ${name}`);
  }
  return parts.slice(0, 6).join("  ") + (parts.length > 6 ? ` and ${parts.length - 6} more` : "");
}

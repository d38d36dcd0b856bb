// What the stream tells, kept for this tab: rows by group, the status of the sweeps.

export const fleet = { rows: new Map(), status: null, version: 0, up: false, heard: 0 };
const listeners = new Set();

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function apply({ change, up }) {
  if (up !== undefined) fleet.up = up;
  if (change) {
    if (change.whole) fleet.rows.clear();
    for (const row of change.rows) fleet.rows.set(row.group, row);
    for (const name of change.gone) fleet.rows.delete(name);
    fleet.status = change.status;
    fleet.version = change.version;
    fleet.heard = Date.now();
    fleet.up = true;
  }
  for (const listener of [...listeners]) listener(change);
}

// The only address a script of these pages may load by itself.
const WORKER = "/static/worker.js";
function workerAddress() {
  if (!window.trustedTypes) return WORKER;
  const policy = window.trustedTypes.createPolicy("shoal", {
    createScriptURL: (given) => {
      if (given !== WORKER) throw new TypeError("not an address of ours");
      return given;
    },
  });
  return policy.createScriptURL(WORKER);
}

// Begun at once: its script comes while the page logs in.
const port = window.SharedWorker ? new SharedWorker(workerAddress(), { name: "shoal" }).port : null;

export function connect(cluster) {
  if (!port) return connectAlone(cluster);
  port.onmessage = ({ data }) => apply(data);
  const say = (more) => port.postMessage({ visible: document.visibilityState === "visible", ...more });
  say({ hello: cluster });
  setInterval(() => say({}), 20000);
  document.addEventListener("visibilitychange", () => say({}));
  window.addEventListener("pagehide", () => say({ gone: true }));
  window.addEventListener("pageshow", (event) => { if (event.persisted) say({ hello: cluster }); });
}

function connectAlone(cluster) {
  let source = null;
  const settle = () => {
    const wanted = document.visibilityState === "visible";
    if (wanted && !source) {
      source = new EventSource(`/api/stream${cluster ? `?cluster=${encodeURIComponent(cluster)}` : ""}`);
      source.addEventListener("open", () => apply({ up: true }));
      source.addEventListener("error", () => apply({ up: false }));
      source.addEventListener("fleet", (event) => apply({ change: JSON.parse(event.data) }));
    } else if (!wanted && source) {
      source.close();
      source = null;
    }
  };
  document.addEventListener("visibilitychange", settle);
  settle();
}

// One event stream for all tabs of this browser: HTTP/1.1 allows six connections to a host, and
// a stream in every tab would leave the seventh with none. Closed while no tab is looked at.

const streams = new Map();

function streamOf(cluster) {
  let one = streams.get(cluster);
  if (!one) {
    one = { cluster, ports: new Map(), source: null, rows: new Map(), status: null, version: 0, up: false };
    streams.set(cluster, one);
  }
  return one;
}

function open(one) {
  if (one.source) return;
  const query = one.cluster ? `?cluster=${encodeURIComponent(one.cluster)}` : "";
  one.source = new EventSource(`/api/stream${query}`);
  one.source.addEventListener("open", () => tell(one, { up: (one.up = true) }));
  one.source.addEventListener("error", () => {
    tell(one, { up: (one.up = false) });
    if (one.source && one.source.readyState === EventSource.CLOSED) close(one, 3000);
  });
  one.source.addEventListener("fleet", (event) => {
    const change = JSON.parse(event.data);
    if (change.whole) one.rows.clear();
    for (const row of change.rows) one.rows.set(row.group, row);
    for (const name of change.gone) one.rows.delete(name);
    one.status = change.status;
    one.version = change.version;
    tell(one, { change });
  });
}

function close(one, again) {
  if (one.source) one.source.close();
  one.source = null;
  one.up = false;
  if (again) setTimeout(() => settle(one), again);
}

function settle(one) {
  const now = Date.now();
  for (const [port, seen] of one.ports) if (now - seen.at > 60000) one.ports.delete(port);
  if ([...one.ports.values()].some((seen) => seen.visible)) open(one);
  else close(one, 0);
}

function tell(one, message) {
  for (const port of one.ports.keys()) port.postMessage(message);
}

self.onconnect = (event) => {
  const port = event.ports[0];
  let one = null;
  port.onmessage = ({ data }) => {
    if (data.hello !== undefined) {
      one = streamOf(data.hello);
      if (one.status) {
        const change = { whole: true, rows: [...one.rows.values()], gone: [], status: one.status, version: one.version };
        port.postMessage({ change });
        port.postMessage({ up: one.up });
      }
    }
    if (!one) return;
    if (data.gone) one.ports.delete(port);
    else one.ports.set(port, { visible: data.visible, at: Date.now() });
    settle(one);
  };
};

// Questions to the server this page came from; to nobody else.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function answer(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    body = { error: `the server answered ${response.status}` };
  }
  if (!response.ok) throw new Refused(response.status, body.error || `the server answered ${response.status}`);
  return body;
}

export const chosen = { cluster: "" };

function where(path, parameters) {
  const given = { ...parameters };
  if (chosen.cluster) given.cluster = chosen.cluster;
  const query = new URLSearchParams(given).toString();
  return query ? `${path}?${query}` : path;
}

export async function get(path, parameters = {}) {
  return answer(await fetch(where(path, parameters), { headers: { "X-Shoal": "1" } }));
}

export async function post(path, body) {
  return answer(await fetch(where(path, {}), {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Shoal": "1" },
    body: JSON.stringify(body),
  }));
}

// The frame around every page: log in, pages by path, the status of the stream, keys.

import { chosen, get, post, Refused } from "./api.js";
import { address, h, link, replace, text } from "./dom.js";
import { ago } from "./format.js";
import { connect, fleet, onChange } from "./live.js";

const PAGES = {
  "/": ["Fleet", "fleet"],
  "/group": ["Group", "group"],
  "/rebalances": ["Rebalances", "rebalances"],
  "/topics": ["Topics", "topics"],
  "/topic": ["Topic", "topic"],
  "/what-if": ["What if", "what-if"],
  "/reset": ["Reset offsets", "reset"],
  "/lab": ["Lab", "lab"],
};
const main = document.getElementById("main");
const notice = document.getElementById("notice");
export const about = { value: null };
let leave = null;
let shown = "";

export function say(message, level = "note") {
  notice.hidden = !message;
  notice.className = `notice ${level}`;
  text(notice, message);
}

export function go(path, parameters, { replaced = false } = {}) {
  const to = address(path, chosen.cluster ? { ...parameters, cluster: chosen.cluster } : parameters);
  history[replaced ? "replaceState" : "pushState"](null, "", to);
  if (!replaced) show();
}

const pageHere = () => PAGES[location.pathname] || PAGES["/"];
const load = () => import(`./pages/${pageHere()[1]}.js`);

async function show() {
  const path = location.pathname;
  const [name] = pageHere();
  const parameters = Object.fromEntries(new URLSearchParams(location.search));
  for (const one of document.querySelectorAll("nav a")) {
    const is = one.pathname === ({ "/group": "/", "/topic": "/topics" }[path] || path);
    if (is) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  if (leave) leave();
  leave = null;
  const ticket = (shown = `${path}${location.search}${performance.now()}`);
  document.title = `${parameters.group || parameters.topic || name} · Shoal`;
  const page = await load();
  if (ticket !== shown) return;
  replace(main);
  main.className = `page-${path.slice(1) || "fleet"}`;
  try {
    leave = await page.show(main, parameters);
  } catch (error) {
    failed(error);
  }
}

export function failed(error) {
  if (error instanceof Refused && error.status === 401) return askIn();
  replace(main, h("section", { class: "panel" }, h("h1", null, "That did not work"), h("p", null, error.message), h("p", null, link("/", {}, "Back to the fleet"))));
}

function askIn() {
  const field = h("input", { id: "secret", type: "password", autocomplete: "current-password", required: true });
  const wrong = h("p", { class: "bad", role: "alert" });
  const form = h("form", { class: "panel login", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await post("/api/session", { secret: field.value });
      location.reload();
    } catch (error) {
      text(wrong, error.message);
    }
  } }, h("h1", null, "Log in"), h("p", null, "Open the address that ", h("code", null, "shoal ui"), " printed; or give its token or password here."), h("input", { autocomplete: "username", value: "shoal", hidden: true }), h("label", { for: "secret" }, "Token or password"), field, h("button", { type: "submit", class: "main" }, "Log in"), wrong);
  replace(main, form);
  field.focus();
}

async function logIn() {
  // The token is in the part of the address that is never sent; it is used once and wiped out.
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return null;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    return await post("/api/session", { secret: token });
  } catch (error) {
    say(error.message, "problem");
    return null;
  }
}

function status() {
  const pill = document.getElementById("status");
  const known = fleet.status;
  let level = "ok", words = "connecting";
  if (!fleet.up) [level, words] = ["problem", "no connection to the dashboard; trying again"];
  else if (known) {
    words = known.swept_ms ? `live · ${ago(known.swept_ms)}` : known.problem;
    if (known.problem) [level, words] = ["problem", known.swept_ms ? `stale · as of ${ago(known.swept_ms)}` : known.problem];
  }
  pill.className = `status ${level}`;
  text(document.getElementById("status-text"), words);
  if (known && known.problem && known.swept_ms) say(`${known.problem}. What is shown is from ${ago(known.swept_ms)}.`, "problem");
  else if (known && !notice.hidden && notice.classList.contains("problem")) say("");
}

function showClusters({ clusters, demo }) {
  const place = document.getElementById("clusters");
  if (clusters.length < 2) {
    replace(place, h("span", { class: "cluster" }, clusters[0]));
    if (demo) place.append(h("span", { class: "chip" }, "demo"));
    return;
  }
  const select = h("select", { "aria-label": "Cluster", onchange: () => { location.href = address("/", { cluster: select.value }); } }, clusters.map((name) => h("option", { value: name, selected: name === chosen.cluster }, name)));
  replace(place, select);
  for (const one of document.querySelectorAll(".bar a")) one.href = address(one.pathname, { cluster: chosen.cluster });
}

function keys(event) {
  if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  const dialog = document.getElementById("keys");
  if (event.key === "?") dialog.showModal();
  else if (event.key === "/") document.querySelector("input[type=search]")?.focus();
  else if ("123456".includes(event.key)) document.querySelectorAll("nav a")[event.key - 1].click();
  else return;
  event.preventDefault();
}

function follow(event) {
  const a = event.target.closest("a[href]");
  if (!a || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const url = new URL(a.href);
  if (url.origin !== location.origin || !(url.pathname in PAGES) || url.hash) return;
  event.preventDefault();
  go(url.pathname, Object.fromEntries(url.searchParams));
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

async function start() {
  load().catch(() => {});  // begun at once; ``show`` says what is wrong
  chosen.cluster = new URLSearchParams(location.search).get("cluster") || "";
  try {
    about.value = (await logIn()) || (await get("/api/about"));
  } catch (error) {
    return failed(error);
  }
  document.addEventListener("click", follow);
  document.addEventListener("keydown", keys);
  window.addEventListener("popstate", show);
  showClusters(about.value);
  onChange(status);
  setInterval(status, 1000);
  connect(chosen.cluster);
  await show();
}

start();

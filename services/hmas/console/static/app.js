// The frame around the pages: which one is shown stands in the address, as `/page?choice=NAME` or `/r/ID`.

import { el, set } from "/static/dom.js";
import { follow } from "/static/stream.js";
import * as control from "/static/pages/control.js";
import * as jobs from "/static/pages/jobs.js";
import * as lanes from "/static/pages/lanes.js";
import * as now from "/static/pages/now.js";
import * as plan from "/static/pages/plan.js";
import * as queue from "/static/pages/queue.js";
import * as request from "/static/pages/request.js";
import * as tenants from "/static/pages/tenants.js";
import * as whatif from "/static/pages/whatif.js";

const PAGES = { now, queue, control, requests: request, tenants, lanes, jobs, whatif, plan };
const status = document.getElementById("status");
const main = document.getElementById("page");
const banner = document.getElementById("banner");
const pause = document.getElementById("pause");
let leave = () => {};
let drawn = null; // draws the newest view again, after a change of the window's size
let heard_ms = 0;
let paused = false;
let about = { can_act: false, needs_token: false };

function where() {
  const path = location.pathname;
  if (path.startsWith("/r/")) return { page: "requests", id: decodeURIComponent(path.slice(3)), choice: "" };
  const page = path.slice(1) in PAGES ? path.slice(1) : "now";
  return { page, id: "", choice: new URLSearchParams(location.search).get("choice") ?? "" };
}

function go(address) {
  history.pushState(null, "", address);
  show();
}

function show() {
  leave();
  drawn = null;
  if (paused) toggle();
  const at = where();
  const page = PAGES[at.page];
  document.title = `${at.id || page.title} · H-MAS console`;
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.dataset.page === at.page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const address = (choice) => `/${at.page}?${new URLSearchParams({ choice })}`;
  const choose = (choice) => go(address(choice));
  const restate = (choice) => { // what was typed into the page stays
    history.pushState(null, "", address(choice));
    listen(at.page, choice, draw);
  };
  const draw = page.open(main, { ...at, choose, restate, can_act: about.can_act });
  listen(at.page, at.choice, draw);
}

function listen(page, choice, draw) {
  leave();
  heard_ms = performance.now();
  leave = follow(page, choice, (view, now_s) => {
    heard_ms = performance.now();
    set(status, view.connected ? "" : "the console cannot reach NATS: what stands here is old");
    tell_observing(Object.keys(view.observing ?? {}));
    drawn = () => draw(view, now_s);
    if (!paused) drawn();
  }, lost);
}

function tell_observing(pools) { // of these pools nothing that the pages call in force is
  banner.hidden = pools.length === 0;
  set(banner, pools.length ? `observing: nothing waits. Gateways place each request at once, and no topology, pin or limit is in force (${pools.join(", ")})` : "");
}

async function lost() {
  try {
    about = await (await fetch("/api/about")).json();
    if (about.needs_token && (await fetch("/api/stream?page=none")).status === 401) ask_token();
    else set(status, "the stream broke; it is opened again");
  } catch {
    set(status, "the console does not answer");
  }
}

async function login(token) {
  const answer = await fetch("/api/login", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ token }),
  });
  return answer.ok;
}

function ask_token() {
  leave();
  leave = () => {};
  set(status, "");
  const token = el("input", { type: "password", id: "token", maxlength: "300", autocomplete: "current-password" });
  const form = el("form", { class: "act" }, el("label", { for: "token" }, "readers' token"), token, el("button", {}, "read"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await login(token.value)) show();
    else set(status, "this is not the readers' token");
  });
  main.replaceChildren(form);
  token.focus();
}

function toggle() {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  if (!paused && drawn) drawn();
}

const names = Object.keys(PAGES);
document.getElementById("pages").append(...names.map((name, number) =>
  el("a", { href: `/${name}`, "data-page": name, title: `key ${number + 1}` }, PAGES[name].title)));
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = document.getElementById("id").value.trim();
  if (id) go(`/r/${encodeURIComponent(id)}`);
});
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "p") toggle();
  else if (event.key === "/") { event.preventDefault(); document.getElementById("id").focus(); }
  else if (names[event.key - 1]) go(`/${names[event.key - 1]}`);
});
pause.addEventListener("click", toggle);
window.addEventListener("popstate", show);
window.addEventListener("resize", () => drawn && drawn());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn && drawn());
setInterval(() => {
  if (performance.now() - heard_ms > 4000 && !document.getElementById("token")) set(status, "no news for 4 s");
}, 1000);

about = await (await fetch("/api/about")).json();
if (location.hash.startsWith("#token=")) { // as `hmas up` prints it; the part after # never leaves the browser
  const token = decodeURIComponent(location.hash.slice(7));
  history.replaceState(null, "", location.pathname + location.search);
  await login(token);
}
show();

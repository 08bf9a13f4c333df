import { NAME, clock, el, fixed, picker, request_link, set, table } from "/static/dom.js";
import { ago, lanes, legend } from "/static/draw.js";

export const title = "Lanes";
const KINDS = [["wait", 7], ["prefill", 1], ["hand-over", 4], ["decode", 0]];
const COLOUR = Object.fromEntries(KINDS);

export function open(main, { choice, choose }) {
  const worker = picker("worker", [], choice, choose);
  const canvas = el("canvas", { role: "img", "aria-label": "requests on the engines; they are in the table" });
  const key = el("ul", { class: "legend" });
  const left = el("p", { class: "dim" });
  const rows = table("the last requests that ended", [
    ["ended", (row) => clock(row.ended_s)], ["engine", (row) => row.lane], ["leg", leg],
    ["tenant", (row) => row.tenant, NAME], ["request", (row) => request_link(row.request_id)],
    ["waited", (row) => fixed(2, " s")(row.granted_s - row.queued_s), true],
    ["prefill", (row) => row.leg === "answer" ? "" : fixed(2, " s")(row.first_s - row.granted_s), true],
    ["hand-over", (row) => row.leg === "answer" ? fixed(2, " s")(row.first_s - row.granted_s) : "", true],
    ["decode", (row) => fixed(2, " s")(row.ended_s - row.first_s), true], ["end", (row) => row.outcome],
  ]);
  main.replaceChildren(el("h2", {}, "Requests on each engine, last minute"), worker.node,
    el("figure", {}, canvas, key), left, rows.node);
  legend(key, KINDS);
  return (view, now_s) => {
    const spans = Object.values(view.spans);
    const { names, bars } = packed(Object.keys(view.lanes), spans);
    worker.update(["", ...Object.keys(view.workers)], view.worker);
    lanes(canvas, names, bars, [], { from: now_s - view.shown_s, until: now_s, told: ago(now_s), row: 12 });
    set(left, view.left_out ? `the newest ${spans.length}; ${view.left_out} more in this minute` : "");
    rows.update(Object.entries(view.spans).reverse().slice(0, 25));
  };
}

// What of a request the engine did, where two shared it.
const leg = (row) => ({ prompt: `prompt for ${row.partner}`, answer: `answer, prompt by ${row.partner}` })[row.leg] ?? "";

const MOST_ROWS = 12; // of one engine: further requests are drawn over one another in the last

// Requests run side by side on an engine: each goes into the first row of its engine that is free.
function packed(engines, spans) {
  const ends = new Map(engines.map((name) => [name, [0]]));
  const bars = [];
  for (const span of [...spans].sort((a, b) => a.granted_s - b.granted_s)) {
    const rows = ends.get(span.lane);
    if (!rows) continue;
    let row = rows.findIndex((end) => end <= span.granted_s);
    if (row < 0) row = rows.length < MOST_ROWS ? rows.push(0) - 1 : MOST_ROWS - 1;
    rows[row] = span.ended_s;
    const lane = row ? `${span.lane} · ${row + 1}` : span.lane;
    bars.push({ lane, from: span.queued_s, until: span.granted_s, colour: COLOUR.wait, faint: true });
    const first = span.leg === "answer" ? "hand-over" : "prefill";
    bars.push({ lane, from: span.granted_s, until: span.first_s, colour: COLOUR[first] });
    bars.push({ lane, from: span.first_s, until: span.ended_s, colour: COLOUR.decode, bad: span.outcome !== "finished" });
  }
  const names = engines.flatMap((name) => ends.get(name).map((_, row) => row ? `${name} · ${row + 1}` : name));
  return { names, bars };
}

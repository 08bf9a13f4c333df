import { NAME, TEXT, clock, el, fixed, picker, request_link, set, table } from "/static/dom.js";
import { hue, lanes, legend, slack } from "/static/draw.js";

export const title = "Queue";
const IN_FORCE = "in-force";
const MOST_S = 120; // further slack is drawn at the edge; the table has the number
const STATES = { asked: "asking the worker ...", silent: "the worker does not answer" };

export function open(main, { choice, choose }) {
  const chosen = { topology: IN_FORCE, worker: "" };
  const [topology, ...rest] = choice.split(" ");
  if (topology) Object.assign(chosen, { topology, worker: rest.join(" ") });
  const go = (change) => choose(`${change.topology ?? chosen.topology} ${change.worker ?? chosen.worker}`);
  const worker = picker("worker", [], chosen.worker, (name) => go({ worker: name }));
  const order = picker("order under", [IN_FORCE], chosen.topology, (name) => go({ topology: name }));
  const counts = el("p", { role: "status" });
  const canvas = el("canvas", { role: "img", "aria-label": "the queue in service order; it is in the table" });
  const key = el("ul", { class: "legend" });
  const rows = table("requests that wait, the next one first", [
    ["place", (row) => row.place, true], ["in force", (row) => row.in_force, true],
    ["SLO", (row) => el("span", { class: row.late ? "bad" : "" }, verdict(row))],
    ["slack", (row) => fixed(1, " s")(row.slack_s), true], ["tenant", (row) => row.tenant, NAME],
    ["request", (row, id) => request_link(id)], ["starts in", (row) => fixed(1, " s")(row.start_s), true],
    ["service", (row) => fixed(2, " s")(row.service_s), true], ["waited", (row) => fixed(1, " s")(row.waited_s), true],
    ["prompt", (row) => row.prompt_tokens, true], ["answer", (row) => `${row.output_tokens}${row.known ? "" : " ?"}`, true],
    ["why here", (row) => row.why, TEXT],
  ]);
  main.replaceChildren(
    el("h2", {}, "What waits, in the order in which it will be served"),
    el("p", { class: "pickers" }, worker.node, " ", order.node), counts,
    el("figure", {}, canvas, key, el("figcaption", {}, "A bar begins at the slack that is left when its request is "
      + "predicted to start, and is as long as its predicted service. Left of the line (✕, edged): it will miss its SLO. "
      + "Hatched: relegated. Colour: tenant.")), rows.node);
  return (view) => {
    Object.assign(chosen, { topology: view.topology, worker: view.worker });
    worker.update(Object.keys(view.workers), view.worker);
    order.update(view.choices, view.topology);
    set(counts, said(view));
    const sorted = Object.entries(view.rows).sort(([, a], [, b]) => a.place - b.place);
    const bars = sorted.map(([, row]) => bar(row));
    const ends = bars.flatMap((each) => [each.from, each.until]);
    lanes(canvas, bars.map((each) => each.lane), bars, [{ at: 0, label: "", bad: true }], {
      from: Math.min(-1, ...ends), until: Math.max(1, ...ends), told: slack, row: height(bars.length) });
    legend(key, [...new Set(sorted.map(([, row]) => row.tenant))].sort().slice(0, 20).map((name) => [name, hue(name)]));
    rows.node.classList.toggle("in-force", view.topology === IN_FORCE);
    rows.update(sorted);
    canvas.dataset.order = sorted.map(([id]) => id).join(" "); // what is drawn, from top to bottom
  };
}

const height = (count) => count <= 60 ? 16 : count <= 120 ? 13 : 8; // of the last, no row has room for its name

function verdict(row) {
  if (row.slack_s === undefined) return "not predicted";
  return `${row.late ? "will miss" : "will meet"}${row.relegated ? ", relegated" : ""}`;
}

function bar(row) {
  const from = Math.max(-MOST_S, Math.min(MOST_S, row.slack_s ?? 0));
  return { lane: `${row.place} ${row.tenant}`, from, until: Math.min(MOST_S, from + row.service_s), colour: hue(row.tenant),
    hatched: row.relegated, edged: row.late, sign: row.late ? "✕" : "" };
}

function said(view) {
  if (!view.worker) return "no worker is known";
  if (view.state !== "told") return STATES[view.state];
  const shown = Object.keys(view.rows).length;
  const order = view.topology === IN_FORCE ? `${view.in_force} is in force` :
    `as ${view.topology} would order them; ${view.in_force} is in force`;
  const counts = `${view.waiting} wait (${view.parked} parked), ${view.late} will miss their SLO, ${view.relegated} relegated, `
    + `${view.running} run; ${order}; as of ${clock(view.at_s)}`;
  if (!view.ordered) return `${counts}; too many wait to be put in order here`;
  return shown < view.waiting - view.parked ? `${counts}; the first ${shown}` : counts;
}

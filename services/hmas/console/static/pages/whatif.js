import { act, admin_token } from "/static/act.js";
import { TEXT, clock, el, fixed, picker, set, share, table } from "/static/dom.js";
import { lanes, legend, percent, points } from "/static/draw.js";

export const title = "What-if";
const COLUMNS = { observed: "observed", in_force: "in force, simulated", candidate: "candidate" };
const gain = (value) => typeof value === "number" ? points(value) : "–";
const spread = (row) => row.low === undefined ? "–" : `${points(row.low)} to ${points(row.high)}`;

export function open(main, { restate, can_act }) {
  let question = {};
  let answer = {};
  const ask = (change) => restate(String(new URLSearchParams(Object.entries({ ...question, ...change }).filter(([, v]) => v))));
  const pick = (label, name) => picker(label, [], "", (value) => ask({ [name]: value }), "as it is");
  const pool = pick("pool", "pool");
  const fields = { minutes: pick("last minutes", "minutes"), topologies: pick("topology", "topology"),
    objectives: pick("objective", "objective"), engines: pick("engines", "engines") };
  const slo = el("input", { maxlength: "120", placeholder: "chat:ttft=800,tpot=60", spellcheck: "false",
    onchange: () => ask({ slo: slo.value.trim() }) });
  const token = admin_token();
  const start = el("button", {}, "simulate");
  const change = el("button", { type: "button", hidden: true });
  const said = el("span", { role: "status", class: "dim" });
  const form = el("form", { class: "act", "aria-label": "simulate and switch" }, token, start, change, said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    set(said, await act("/api/whatif", token.value, question));
  });
  change.addEventListener("click", async () => {
    const wanted = { pool: question.pool, topology: answer.switch };
    set(said, await act("/api/pin", token.value, wanted) || `${wanted.pool}: pinned to ${wanted.topology}; Control lifts it`);
  });
  const state = el("p", { role: "status" });
  const doubt = el("p", { class: "bad" });
  const shares = el("canvas", { role: "img", "aria-label": "share of requests on time by tenant; it is in the table" });
  const key = el("ul", { class: "legend" });
  const gains = el("canvas", { role: "img", "aria-label": "difference by tenant with its spread; it is in the table" });
  const all = table("all requests (the observed TTFT is that of the answered ones)", [
    ["", (row, name) => COLUMNS[name]], ["on time", (row) => share(row.on_time), true], ["difference", (row) => gain(row.gain), true],
    ["90 % interval", spread, true], ["TTFT p50", (row) => fixed(2, " s")(row.ttft_p50_s), true],
    ["p95", (row) => fixed(2, " s")(row.ttft_p95_s), true],
    ["requests", (row) => row.requests, true], ["what", (row) => row.what, TEXT],
  ]);
  const tenants = table("tenants", [
    ["tenant", (row, name) => name], ["requests", (row) => row.requests, true],
    ...Object.entries(COLUMNS).map(([name, label]) => [label, (row) => share(row[name]), true]),
    ["difference", (row) => gain(row.gain), true], ["90 % interval", spread, true],
  ]);
  const results = el("section", { hidden: true });
  main.replaceChildren(
    el("h2", {}, "What another policy would have done to the last requests"),
    el("p", { class: "pickers" }, pool.node, ...Object.values(fields).map((field) => field.node),
      el("label", { class: "dim" }, "SLO in ms ", slo)),
    can_act ? form : el("p", { class: "dim" }, "Simulating takes the admin's token, and this console has none."),
    state, doubt, results,
  );
  results.append(
    all.node,
    el("figure", {}, shares, key, el("figcaption", {}, "share of requests on time by tenant")),
    el("figure", {}, gains, el("figcaption", {}, "candidate minus what is in force, both simulated, in points: a bar is "
      + "the 90 % interval, the flag in it the difference")),
    tenants.node,
  );
  return (view, now_s) => {
    ({ question, answer } = view);
    pool.update(Object.keys(view.pools), question.pool);
    for (const [name, field] of Object.entries(fields))
      field.update(view[name], question[{ topologies: "topology", objectives: "objective" }[name] ?? name]);
    if (document.activeElement !== slo) slo.value = question.slo;
    start.disabled = Boolean(view.lacks || !question.pool);
    change.hidden = !answer.switch;
    set(change, `switch: pin ${answer.switch}`);
    set(state, told(view));
    set(doubt, answer.abstains ? `Do not believe the simulated figures: ${answer.abstains}` : "");
    const what = { observed: "", in_force: answer.in_force, candidate: answer.candidate };
    const rows = Object.keys(COLUMNS).filter((name) => answer.rows?.[name]);
    results.hidden = rows.length === 0;
    all.update(rows.map((name) => [name, { ...answer.rows[name], what: what[name] }]));
    const sorted = Object.entries(answer.tenants ?? {}).sort(([, a], [, b]) => b.requests - a.requests);
    tenants.update(sorted);
    lanes(shares, sorted.flatMap(([name]) => rows.map((row) => lane(name, row))), sorted.flatMap(([name, row]) =>
      rows.filter((column) => row[column] >= 0).map((column) => ({ lane: lane(name, column), from: 0, until: row[column],
        colour: Object.keys(COLUMNS).indexOf(column), label: share(row[column]), outside: row[column] < 0.2 }))), [],
    { from: 0, until: 1, told: percent });
    legend(key, rows.map((name) => [COLUMNS[name], Object.keys(COLUMNS).indexOf(name)]));
    const moved = sorted.filter(([, row]) => row.gain !== undefined);
    const ends = moved.flatMap(([, row]) => [row.low, row.high]);
    lanes(gains, moved.map(([name]) => name), moved.map(([name, row]) => ({ lane: name, from: row.low, until: row.high,
      colour: 2, label: gain(row.gain), outside: true })), [{ at: 0, label: "" }, ...moved.map(([name, row]) => ({ lane: name, at: row.gain }))],
    { from: Math.min(-0.05, ...ends), until: Math.max(0.05, ...ends), told: points });
  };
}

const lane = (name, column) => column === "observed" ? name : `${name} · ${column}`;

function told(view) {
  if (view.lacks) return `A what-if cannot be simulated here: ${view.lacks}`;
  if (!view.question.pool) return "no pool is known";
  if (view.state === "runs") return `simulating for ${view.since_s} s, 120 s at most ...`;
  if (view.state === "failed") return `It failed: ${view.error}`;
  if (view.state === "none") return view.busy ? "Another what-if runs: wait for its end." : "Not simulated yet.";
  const { at_s, window_s, drawn, candidate } = view.answer;
  const asked = candidate ? "" : " Nothing was changed: what was observed and its simulation should agree.";
  const unknown = drawn ? ` The lengths of ${drawn} requests that did not finish were drawn.` : "";
  const pinned = candidate && !view.answer.switch ? " A pin switches the topology alone, so that nothing is offered here." : "";
  return `Simulated at ${clock(at_s)}: requests of ${window_s} s.${asked}${unknown}${pinned}`;
}

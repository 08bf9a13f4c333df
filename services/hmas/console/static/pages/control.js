import { act, admin_token } from "/static/act.js";
import { TEXT, clock, el, fixed, folded, picker, set, share, table } from "/static/dom.js";
import { curves, hue, lanes, legend, points, recent } from "/static/draw.js";

export const title = "Control";
const gain = (value) => typeof value === "number" ? points(value) : "–";

function pin_form() {
  const pool = el("select", { "aria-label": "pool" });
  const topology = el("select", { "aria-label": "topology" });
  const token = admin_token();
  const said = el("span", { role: "status", class: "dim" });
  const form = el("form", { class: "act", "aria-label": "pin a topology" }, "pin", pool, "to", topology, token,
    el("button", {}, "apply"), said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const order = { pool: pool.value, topology: topology.value || null };
    const wrong = await act("/api/pin", token.value, order);
    set(said, wrong || (order.topology ? `${order.pool}: pinned` : `${order.pool}: pin lifted`));
  });
  const fill = (select, names, words) => {
    const told = names.join("\n");
    if (select.dataset.told === told) return;
    select.dataset.told = told;
    select.replaceChildren(...names.map((name) => el("option", { value: name }, words(name))));
  };
  return { node: form, update: (pools, choices) => {
    fill(pool, pools, (name) => name);
    fill(topology, ["", ...choices], (name) => name || "nothing: lift the pin");
  } };
}

export function open(main, { choice, choose, can_act }) {
  const gantt = el("canvas", { role: "img", "aria-label": "topologies of the last ten minutes; they are in the table" });
  const key = el("ul", { class: "legend" });
  const engine = picker("engine", [], choice, choose);
  const load = el("canvas", { role: "img", "aria-label": "load u of the engine within its band" });
  const limits = el("canvas", { role: "img", "aria-label": "N_run of the engine" });
  const tokens = el("canvas", { role: "img", "aria-label": "B_token of the engine" });
  const force = el("p", { class: "dim" });
  const form = can_act ? pin_form() : null;
  const topologies = table("topologies", [
    ["from", (row) => clock(row.from_s)], ["until", (row) => clock(row.until_s)], ["pool", (row) => row.pool],
    ["topology", (row) => row.bypass ? `${row.topology} BYPASS` : row.topology], ["proposed by", (row) => row.proposer],
    ["rehearsal", (row) => gain(row.predicted), true], ["outcome", (row) => gain(row.observed), true],
    ["missed before", (row) => share(row.missed_before), true], ["after", (row) => share(row.missed_after), true],
    ["reason", (row) => row.reason, TEXT],
  ]);
  const flags = table("decisions with their reasons", [
    ["at", (row) => clock(row.at_s)], ["pool", (row) => row.pool], ["what", (row) => row.kind],
    ["decision", (row) => row.decision, TEXT], ["by", (row) => row.proposer || row.source], ["reason", (row) => row.reason, TEXT],
  ]);
  const loop = table("the last points of the loops", [
    ["time", (row, at) => clock(at)], ["u", (row) => row[0], true], ["band from", (row) => row[1], true],
    ["to", (row) => row[2], true], ["N_run", (row) => row[3], true], ["B_token", (row) => row[4], true],
  ]);
  const fence = table("the fence: what predicted 90 % quantiles of lengths are multiplied by", [
    ["predictor", (row) => row.predictor], ["prompts up to", (row) => row.prompt_upto < 2 ** 31 ? row.prompt_upto : "longer", true],
    ["factor", (row) => fixed(3)(row.factor), true],
  ]);
  const inside = el("p", { class: "dim" });
  main.replaceChildren(
    el("h2", {}, "Topologies"), ...(form ? [form.node] : []), el("figure", {}, gantt, key), topologies.node, flags.node,
    el("h2", {}, "Statera's loops"), engine.node, force,
    el("figure", {}, load, el("figcaption", {}, "load u, dashed: the band that it is held in")),
    el("figure", {}, limits, el("figcaption", {}, "N_run, the most sequences in flight")),
    el("figure", {}, tokens, el("figcaption", {}, "B_token, the decode tokens of a step")),
    folded("the last points of the loops, in numbers", loop.node),
    inside, fence.node,
  );
  return (view, now_s) => {
    const pools = Object.keys(view.pools);
    const segments = Object.entries(view.topologies);
    const marks = Object.entries(view.flags);
    const past = Object.entries(view.loop).map(([at, row]) => [+at, row]);
    const axis = recent(now_s, Math.min(now_s, ...past.map(([at]) => at), ...segments.map(([, row]) => row.from_s)));
    const bars = segments.map(([, row]) => ({ lane: row.pool, from: row.from_s, until: row.until_s, bad: row.bypass,
      colour: hue(row.topology), label: row.pinned ? `${row.topology} (pinned)` : row.topology }));
    const flags_of = (pool) => `⚑ ${pool}`;
    lanes(gantt, pools.flatMap((pool) => [pool, flags_of(pool)]), bars, marks.map(([, row]) => ({
      lane: flags_of(row.pool), at: row.at_s, label: row.kind,
      bad: row.kind.startsWith("bypass") || row.kind === "rolled_back" })), { ...axis, row: 24 });
    legend(key, [...new Set(segments.map(([, row]) => row.topology))].sort().map((name) => [name, hue(name)]));
    topologies.update(segments.reverse().slice(0, 20));
    flags.update(marks.reverse().slice(0, 20));
    form?.update(pools, view.choices);
    engine.update(Object.keys(view.engines), view.engine);
    const one = (place, dashed) => ({ dashed, points: past.map(([at, row]) => [at, row[place]]) });
    curves(load, [one(0), one(1, true), one(2, true)], { ...axis, most: 1, height: 120 });
    curves(limits, [one(3)], { ...axis, height: 90 });
    curves(tokens, [one(4)], { ...axis, height: 90 });
    fence.update(Object.entries(view.fence.factors ?? {}));
    set(inside, view.fence.answers ? `${share(view.fence.inside)} of ${view.fence.answers} answers of this worker in the last `
      + "ten minutes stayed within the bound that memory was reserved for" : "no answer has shown yet whether the fence holds");
    loop.update(past.slice(-5).reverse().map(([at, row]) => [String(at), row]));
    const at = view.set;
    set(force, at.n_run === undefined ? "no control tuple has come yet: the worker's safe default holds"
      : `in force: N_run ${at.n_run}, B_token ${at.b_token} within ${at.b_min} to ${at.b_max}, band ${fixed(2)(at.u_low)} `
      + `to ${fixed(2)(at.u_high)}${at.frozen ? ", frozen by the bypass" : ""}`
      + (at.fence_most === undefined ? "" : `, fence ×${at.fence_least} to ×${at.fence_most}`));
  };
}

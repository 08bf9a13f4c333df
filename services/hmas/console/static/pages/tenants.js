import { NAME, el, fixed, picker, set, share, table } from "/static/dom.js";
import { lanes, percent } from "/static/draw.js";

export const title = "Tenants";

const shares = (label) => [
  [label, (row, name) => name], ["offered", (row) => row.offered, true], ["settled", (row) => row.settled, true],
  ["in time", (row) => share(row.ok), true], ["TTFT", (row) => share(row.ttft_ok), true],
  ["TPOT", (row) => share(row.tpot_ok), true], ["service tokens", (row) => row.tokens, true],
];

export function open(main, { choice, choose }) {
  const pool = picker("pool", [], choice, choose);
  const canvas = el("canvas", { role: "img", "aria-label": "share of requests in time by tenant; it is in the table" });
  const fair = el("p", { class: "dim" });
  const tenants = table("tenants", [...shares("tenant"), ["weight", (row) => row.weight, true],
    ["overdue", (row) => row.overdue, true]]);
  const tasks = table("task types", shares("task"));
  const reasons = table("requests that did not finish, by reason, last ten minutes", [
    ["tenant", (row) => row.tenant, NAME], ["reason", (row) => row.reason], ["requests", (row) => row.count, true],
  ]);
  const promises = table("refused requests that were told when to come back, last ten minutes", [
    ["tenant", (row, name) => name], ["told", (row) => row.made ?? 0, true],
    ["came back and were in time", (row) => row.kept ?? 0, true], ["late", (row) => row.late ?? 0, true],
    ["refused again", (row) => row["refused again"] ?? 0, true], ["promises kept", (row) => share(kept(row)), true],
  ]);
  main.replaceChildren(el("h2", {}, "Attainment"), pool.node, fair, el("figure", {}, canvas,
    el("figcaption", {}, "share of judged requests that met their SLO; those that wait "
      + "past their deadline are overdue, and judged when they end")), tenants.node, tasks.node,
    el("h2", {}, "Refusals and failures"), reasons.node, el("h2", {}, "Promises to refused requests"), promises.node);
  return (view) => {
    const rows = Object.entries(view.tenants).sort(([a], [b]) => a < b ? -1 : 1);
    pool.update(Object.keys(view.pools), view.pool);
    const known = rows.filter(([, row]) => row.ok >= 0).slice(0, 40);
    lanes(canvas, known.map(([name]) => name), known.map(([name, row]) => ({
      lane: name, from: 0, until: row.ok, colour: 0, label: share(row.ok) })), [],
    { from: 0, until: 1, told: percent });
    set(fair, `fairness of service by weight (Jain): ${view.jain < 0 ? "–" : fixed(3)(view.jain)}; `
      + `over the last ${fixed(0)(view.window_s)} s`);
    tenants.update(rows);
    tasks.update(Object.entries(view.tasks));
    reasons.update(Object.entries(view.reasons).flatMap(([tenant, counts]) =>
      Object.entries(counts).map(([reason, count]) => [`${tenant} ${reason}`, { tenant, reason, count }]))
      .sort(([, a], [, b]) => b.count - a.count));
    promises.update(Object.entries(view.promises).sort(([, a], [, b]) => (b.made ?? 0) - (a.made ?? 0)));
  };
}

// The share of the requests that came back at the promised time which were then served in time.
function kept(row) {
  const back = (row.kept ?? 0) + (row.late ?? 0) + (row["refused again"] ?? 0);
  return back ? (row.kept ?? 0) / back : -1;
}

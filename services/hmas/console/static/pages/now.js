import { TEXT, clock, el, figures, fixed, folded, picker, set, share, table } from "/static/dom.js";
import { curves, legend, recent } from "/static/draw.js";

export const title = "Now";
const RATES = { "offered/s": 0, "in time/s": 1 }; // with their places in a point of the curves
const COUNTS = { waiting: 2, overdue: 5, running: 3 };
const CURVES = { ...RATES, ...COUNTS };

export function open(main, { choice, choose }) {
  const pool = picker("pool", [], choice, choose);
  const tiles = el("ul", { class: "tiles", "aria-label": "engines" });
  const pictures = [
    picture(RATES, "requests per second"),
    picture(COUNTS, "requests that wait, those of them past their deadline, and those that run"),
  ];
  const missed = el("canvas", { role: "img", "aria-label": "share of requests that missed their SLO, last ten minutes" });
  const pools = table("pools, last seconds", [
    ["pool", (row, name) => name], ["topology", in_force],
    ["by", (row) => row.selector],
    ["offered/s", (row) => fixed(1)(row.arrival_rps), true], ["in time/s", (row) => fixed(1)(row.in_time_rps), true],
    ["waiting", (row) => row.queued, true], ["overdue", (row) => row.overdue, true], ["running", (row) => row.running, true],
    ["oldest", (row) => fixed(1, " s")(row.oldest_wait_s), true],
    ["TTFT p50", (row) => fixed(2, " s")(row.ttft_p50_s), true], ["p95", (row) => fixed(2, " s")(row.ttft_p95_s), true],
    ["TPOT p50", (row) => fixed(1, " ms")(1000 * row.tpot_p50_s), true],
    ["p95", (row) => fixed(1, " ms")(1000 * row.tpot_p95_s), true],
    ["missed", (row) => share(row.missed), true], ["why", (row) => row.reason, TEXT],
  ]);
  const engines = table("engines", [
    ["engine", (row, name) => name], ["state", (row) => el("span", { class: row.health }, row.words)],
    ["running", (row) => row.running, true], ["waiting", (row) => row.waiting, true],
    ["N_run", (row) => row.n_run, true], ["B_token", (row) => row.b_token, true], ["KV", (row) => share(row.kv), true],
    ["step time", (row) => (row.time_used ? share(row.time_used) : "–"), true],
    ["load u", (row) => fixed(2)(row.utilisation), true], ["step", (row) => fixed(1, " ms")(1000 * row.step_s), true],
    ["pre-empted", (row) => row.preemptions, true],
  ]);
  const tenants = table("attainment by tenant, last minutes", [
    ["tenant", (row, name) => name], ["offered", (row) => row.offered, true], ["settled", (row) => row.settled, true],
    ["overdue", (row) => row.overdue, true], ["in time", (row) => share(row.ok), true],
    ["TTFT", (row) => share(row.ttft_ok), true], ["TPOT", (row) => share(row.tpot_ok), true],
    ["service tokens", (row) => row.tokens, true],
  ]);
  const numbers = table("the last points of the curves", [
    ["time", (row, at) => clock(at)], ...Object.entries(CURVES).map(([name, place]) => [name, (row) => row[place], true]),
    ["missed", (row) => share(row[4]), true],
  ]);
  const glance = figures("the pool at a glance");
  const gain = figures("what scheduling would bring");
  const said = el("p", { role: "status", class: "dim" });
  main.replaceChildren(
    el("h2", {}, "Pool"), pool.node, glance.node, gain.node, said,
    el("h2", {}, "Engines"), tiles,
    el("h2", {}, "Load"), ...pictures.map(({ canvas, key, label }) =>
      el("figure", {}, canvas, key, el("figcaption", {}, label))), el("figure", {}, missed,
      el("figcaption", {}, "share of settled requests that missed their SLO")),
    folded("the last points of the curves, in numbers", numbers.node),
    el("h2", {}, "Tenants"), tenants.node,
    el("h2", {}, "Pools and engines in numbers"), pools.node, engines.node,
  );
  const kept = new Map();
  return (view, now_s) => {
    const rows = Object.entries(view.engines);
    for (const [name, tile] of kept) if (!(name in view.engines)) { tile.remove(); kept.delete(name); }
    for (const [name, row] of rows) {
      let tile = kept.get(name);
      if (!tile) {
        tile = el("li", {}, el("strong", {}, name), el("div"), el("div", { class: "dim" }));
        kept.set(name, tile);
        tiles.append(tile);
      }
      const style = `tile ${row.health}`;
      if (tile.className !== style) tile.className = style;
      set(tile.children[1], row.words);
      set(tile.children[2], `${row.running ?? "–"} run of ${row.n_run ?? "–"} · KV ${share(row.kv)}`);
    }
    engines.update(rows);
    pools.update(Object.entries(view.pools));
    pool.update(Object.keys(view.pools), view.pool);
    const foretold = view.foretold[view.pool];
    glance.update(at_a_glance(view.pools[view.pool] ?? {}));
    gain.update(foretold ? shares(foretold) : []);
    gain.node.hidden = !foretold;
    set(said, foretold ? told(foretold, now_s) : "");
    tenants.update(Object.entries(view.tenants).sort(([a], [b]) => a < b ? -1 : 1));
    const points = Object.entries(view.load).map(([at, values]) => [+at, values]);
    const axis = recent(now_s, points.length ? points[0][0] : now_s);
    for (const { of, canvas, key } of pictures) {
      curves(canvas, Object.entries(of).map(([name, place]) => ({ name, points: points.map(([at, row]) => [at, row[place]]) })),
        { ...axis, height: 110 });
      legend(key, Object.keys(of).map((name, number) => [name, number]));
    }
    curves(missed, [{ points: points.map(([at, row]) => [at, row[4]]) }], { ...axis, most: 1, height: 90 });
    numbers.update(points.slice(-8).reverse().map(([at, row]) => [String(at), row]));
  };
}

const in_force = (row) => row.observes ? `none: observing${row.topology ? ` (would be ${row.topology})` : ""}`
  : row.topology ? row.bypass ? `${row.topology} BYPASS` : row.topology : "–";

const picture = (of, label) => ({
  of, label, key: el("ul", { class: "legend" }),
  canvas: el("canvas", { role: "img", "aria-label": `${label}, last ten minutes; the numbers are in the table` }),
});

function shares(foretold) { // on time, of the last minutes
  return [["on time, as it was", share(foretold.was)], ["on time, as scheduled", share(foretold.scheduled),
    foretold.abstains ? "" : foretold.low > foretold.was ? "ok" : ""]];
}

function told(foretold, now_s) {
  if (foretold.at_s === undefined) return "What scheduling would bring has not been simulated yet.";
  const ago = ` Simulated ${Math.max(0, Math.round(now_s - foretold.at_s))} s ago.`;
  if (foretold.abstains) return `What scheduling would bring cannot be said: ${foretold.abstains}.${ago}`;
  return `Of ${foretold.requests} requests of ${Math.round(foretold.window_s / 60)} min; as scheduled between `
    + `${share(foretold.low)} and ${share(foretold.high)} (90 %).${ago}`;
}

function at_a_glance(row) {
  return [
    [row.window_s >= 60 ? `in time, ${Math.round(row.window_s / 60)} min` : "in time", share(row.in_time)], ["missed, 5 s", share(row.missed), row.missed > 0 ? "bad" : ""],
    ["offered/s", fixed(1)(row.arrival_rps)], ["in time/s", fixed(1)(row.in_time_rps)],
    ["waiting", String(row.queued ?? "–")], ["overdue", String(row.overdue ?? "–"), row.overdue > 0 ? "bad" : ""],
    ["running", String(row.running ?? "–")],
    ["TTFT p95", fixed(2, " s")(row.ttft_p95_s)], ["TPOT p95", fixed(1, " ms")(1000 * row.tpot_p95_s)],
    ["topology", in_force(row), row.bypass && !row.observes ? "bad" : ""],
  ];
}

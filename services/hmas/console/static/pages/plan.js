import { NAME, TEXT, clock, el, figures, fixed, set, share, table } from "/static/dom.js";

export const title = "Plan";
const UNKNOWN = "No plan was heard of: the meta controller tells one once it has a catalogue (HMAS_CATALOGUE), and an "
  + "operator's plan or one that it found.";
const count = (value) => value >= 0 ? value : "–";

export function open(main) {
  const status = el("p", { role: "status" });
  const stats = figures("the plan");
  const pools = table("what is expected of each pool", [
    ["pool", (row, name) => name, NAME], ["on time", (row) => share(row.expected), true],
    ["from", (row) => share(row.low), true], ["to", (row) => share(row.high), true],
    ["of what ran", (row) => share(row.before), true], ["classes planned", (row) => row.classes, TEXT],
    ["classes now", (row) => row.classes_now, TEXT],
  ]);
  const types = table("engines by type", [
    ["type", (row, name) => name], ["pool", (row) => row.pool || "–", NAME], ["planned", (row) => row.wanted, true],
    ["ordered", (row) => count(row.ordered), true],
  ]);
  const engines = table("engines that there are", [
    ["pool", (row) => row.pool, NAME], ["cards", (row) => row.cards || "not told"], ["up", (row) => row.up, true],
    ["not serving", (row) => row.down, true],
  ]);
  const steps = table("steps that are left, one after the other", [
    ["", (row, place) => place, true], ["pool", (row) => row.pool, NAME], ["step", (row) => row.kind],
    ["what", (row) => row.what, TEXT], ["acts after", (row) => fixed(0, " s")(row.acts_after_s), true],
    ["GPU-seconds lost", (row) => fixed(0)(row.lost_gpu_s), true],
  ]);
  const flags = table("decisions about plans", [
    ["at", (row) => clock(row.at_s)], ["pool", (row) => row.pool || "all", NAME], ["what", (row) => row.kind],
    ["decision", (row) => row.decision, TEXT], ["by", (row) => row.by], ["reason", (row) => row.reason, TEXT],
  ]);
  const planned = el("div", {}, stats.node, pools.node, types.node, steps.node, flags.node);
  main.replaceChildren(el("h2", {}, "Plan: which engines there should be"), status, planned, el("h2", {}, "Engines"),
    engines.node);
  return (view) => {
    set(status, view.known ? "" : UNKNOWN);
    planned.hidden = !view.known;
    stats.update([["by", view.by || "–"], ["left", `${Object.keys(view.steps).length} steps`],
      ["at most on time", share(view.bound)], ["why", view.reason || "–"]]);
    pools.update(Object.entries(view.pools));
    types.update(Object.entries(view.types));
    steps.update(Object.entries(view.steps));
    flags.update(Object.entries(view.flags).reverse());
    engines.update(Object.entries(view.engines));
  };
}

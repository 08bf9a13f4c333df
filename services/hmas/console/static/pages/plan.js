import { act, admin_token } from "/static/act.js";
import { NAME, TEXT, clock, el, figures, fixed, set, share, table } from "/static/dom.js";
import { points } from "/static/draw.js";

export const title = "Plan";
const UNKNOWN = "No plan was heard of: the meta controller tells one once it has a catalogue (HMAS_CATALOGUE), and an "
  + "operator's plan or one that it found.";
const count = (value) => value >= 0 ? value : "–";
const gain = (value) => typeof value === "number" ? points(value) : "–";
const THERE = [
  ["up", (row) => row.up, true], ["not serving", (row) => row.down, true], ["running", (row) => row.running, true],
  ["waiting in engines", (row) => row.waiting, true], ["load u", (row) => row.load >= 0 ? fixed(2)(row.load) : "–", true],
  ["classes", (row) => row.classes || "–", TEXT],
];
const SAID = { apply: "applied: the decisions below tell what the controller makes of it",
  roll_back: "rolled back: the decisions below tell what the controller makes of it", lift: "lifted" };

// The three orders: a button for each, and what it would do, or why it would do nothing.
function order_form() {
  let seen = "";
  const token = admin_token();
  const said = el("span", { role: "status", class: "dim" });
  const button = (name, label) => el("button", { type: "button", "aria-describedby": `does-${name}`, onclick: async () =>
    set(said, await act("/api/plan", token.value, { act: name, seen }) || SAID[name]) }, label);
  const buttons = { apply: button("apply", "apply"), roll_back: button("roll_back", "roll back"), lift: button("lift", "lift") };
  const does = Object.fromEntries(Object.keys(buttons).map((name) => [name, el("p", { class: "dim", id: `does-${name}` })]));
  const form = el("form", { class: "act", "aria-label": "apply or roll back the plan" }, token, ...Object.values(buttons), said);
  form.addEventListener("submit", (event) => event.preventDefault());
  return { node: el("div", {}, form, ...Object.values(does)), update: (orders) => {
    const words = { apply: `the operator's plan is ${orders.plan}, and no doubt of the controller's holds its steps back`,
      roll_back: `to what ran before: ${orders.before}`, lift: "the controller goes by a plan of its own again, or by a file's" };
    seen = orders.seen;
    for (const [name, node] of Object.entries(buttons)) {
      const idle = orders.idle[name];
      node.disabled = Boolean(idle);
      set(does[name], `${node.textContent}: ${idle || words[name]}`);
    }
  } };
}

export function open(main, { can_act }) {
  const form = can_act ? order_form() : null;
  const status = el("p", { role: "status" });
  const stats = figures("the plan");
  const pools = table("what is expected of each pool", [
    ["pool", (row, name) => name, NAME], ["on time", (row) => share(row.expected), true],
    ["from", (row) => share(row.low), true], ["to", (row) => share(row.high), true],
    ["of what ran", (row) => share(row.before), true], ["classes planned", (row) => row.classes, TEXT],
    ["classes now", (row) => row.classes_now, TEXT],
  ]);
  const types = table("engines by type", [
    ["type", (row, name) => name], ["pool", (row) => row.pool || "–", NAME], ["cards", (row) => row.cards || "–"],
    ["planned", (row) => row.wanted, true], ["ordered", (row) => count(row.ordered), true], ...THERE,
  ]);
  const engines = table("engines that there are", [
    ["pool", (row) => row.pool, NAME], ["cards", (row) => row.cards || "not told"], ...THERE,
  ]);
  const steps = table("steps that are left, one after the other", [
    ["", (row, place) => place, true], ["pool", (row) => row.pool, NAME], ["step", (row) => row.kind],
    ["what", (row) => row.what, TEXT], ["acts after", (row) => fixed(0, " s")(row.acts_after_s), true],
    ["GPU-seconds lost", (row) => fixed(0)(row.lost_gpu_s), true],
  ]);
  const flags = table("decisions about plans", [
    ["at", (row) => clock(row.at_s)], ["pool", (row) => row.pool || "all", NAME], ["what", (row) => row.kind],
    ["decision", (row) => row.decision, TEXT], ["by", (row) => row.by], ["predicted, points", (row) => gain(row.predicted), true],
    ["observed, points", (row) => gain(row.observed), true], ["reason", (row) => row.reason, TEXT],
  ]);
  const orders = form ? form.node : el("p", { class: "dim" }, "Applying a plan takes the admin's token, and this console has none.");
  const planned = el("div", {}, stats.node, orders, pools.node, types.node, steps.node, flags.node);
  main.replaceChildren(el("h2", {}, "Plan: which engines there should be"), status, planned, el("h2", {}, "Engines"),
    engines.node);
  return (view) => {
    set(status, view.known ? "" : UNKNOWN);
    planned.hidden = !view.known;
    if (view.known) form?.update(view.orders);
    stats.update([["by", view.by || "–"], ["HMAS_PLAN", view.acts || "–"], ["left", `${Object.keys(view.steps).length} steps`],
      ["at most on time", share(view.bound)], ["why", view.reason || "–"]]);
    pools.update(Object.entries(view.pools));
    types.update(Object.entries(view.types));
    steps.update(Object.entries(view.steps));
    flags.update(Object.entries(view.flags).reverse());
    engines.update(Object.entries(view.engines));
  };
}

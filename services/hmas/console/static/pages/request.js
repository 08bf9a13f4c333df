import { NAME, TEXT, clock, el, fixed, request_link, set, table } from "/static/dom.js";
import { lanes, since } from "/static/draw.js";

export const title = "Request";
const COLOURS = { waits: 7, prefill: 1, "hand-over": 4, decode: 0, runs: 0, predicted: 2 };
const AGAIN_MS = 1500; // a request in flight is asked for again

export function open(main, { id }) {
  const recent = table("requests that settled last", [
    ["at", (row) => clock(row.at_s)], ["request", (row, key) => request_link(key)],
    ["tenant", (row) => row.tenant, NAME], ["task", (row) => row.task], ["end", (row) => row.outcome],
    ["SLO", (row) => el("span", { class: row.verdict === "missed" ? "bad" : "" }, row.verdict)],
    ["TTFT", (row) => fixed(2, " s")(row.ttft_s), true], ["tokens", (row) => row.output_tokens, true],
    ["relegated", (row) => row.relegated ? "yes" : "no"],
  ]);
  const shown = el("section");
  main.replaceChildren(shown, el("h2", {}, "Recent requests"), recent.node);
  let redraw = () => {};
  if (id) redraw = one(shown, id);
  return (view) => {
    redraw();
    recent.update(Object.entries(view.recent).sort(([, a], [, b]) => b.at_s - a.at_s));
  };
}

function one(section, id) {
  const said = el("p", { role: "status" }, "asking the gateways ...");
  const canvas = el("canvas", { role: "img", "aria-label": "the request's way; it is in the tables" });
  const bars = table("its way, seconds since its arrival", [
    ["what", (row) => row.what], ["where", (row) => row.where ?? ""],
    ["from", (row) => fixed(3, " s")(row.from_s), true], ["until", (row) => fixed(3, " s")(row.until_s), true],
  ]);
  const facts = table("all that its gateway knows", [["what", (row) => row.what], ["is", (row) => row.is, TEXT]]);
  facts.node.classList.add("facts");
  section.replaceChildren(el("h2", {}, `Request ${id}`), said);
  let told = null;
  const draw = () => {
    if (!told || !canvas.isConnected) return;
    const instants = [...told.bars.map((bar) => bar.until_s), ...told.marks.map((mark) => mark.at_s), 0.001];
    const names = [...new Set(told.bars.map((bar) => bar.what))];
    const rows = [...told.marks.map((mark) => mark.what), ...names];
    lanes(canvas, rows, told.bars.map((bar) => ({ lane: bar.what, from: bar.from_s, until: bar.until_s, label: bar.what,
      colour: COLOURS[bar.what] ?? 3, hollow: bar.what === "predicted" })),
    told.marks.map((mark) => ({ at: mark.at_s, lane: mark.what, label: `${mark.at_s.toFixed(3)} s`,
      bad: passed(mark, told.marks) })), { from: 0, until: 1.08 * Math.max(...instants), told: since });
  };
  const ask = async () => {
    const answer = await fetch(`/api/requests/${encodeURIComponent(id)}`).catch(() => null);
    if (!section.isConnected) return;
    if (!answer?.ok) {
      set(said, answer ? (await answer.json().catch(() => ({}))).detail ?? `no answer (${answer.status})` : "no answer");
      return;
    }
    told = await answer.json();
    section.replaceChildren(el("h2", {}, `Request ${id}`), said, el("figure", {}, canvas), bars.node, facts.node);
    set(said, told.why || told.outcome);
    bars.update(told.bars.map((bar, number) => [String(number), bar]));
    facts.update(told.facts.map((fact) => [fact.what, fact]));
    draw();
    if (told.outcome === "in flight") setTimeout(ask, AGAIN_MS);
  };
  ask();
  return draw;
}

// A deadline is red once it has passed without what it is for.
function passed(mark, marks) {
  const at = (what) => marks.find((other) => other.what === what)?.at_s ?? 0;
  if (mark.what === "first token due") return (at("first token") || at("end")) > mark.at_s;
  return mark.what === "last token due" && at("end") > mark.at_s;
}

import { NAME, el, fixed, request_link, set, share, table } from "/static/dom.js";
import { hue, lanes, since } from "/static/draw.js";

export const title = "Jobs";
const STATES = { asked: "asking the gateways ...", silent: "NATS does not answer" };
const seconds = (value) => value >= 0 ? fixed(2, " s")(value) : "–";

export function open(main) {
  const counts = el("p", { role: "status" });
  const canvas = el("canvas", { role: "img", "aria-label": "mean duration of each template's jobs; it is in the table" });
  const templates = table("templates, the slowest first, those of one call last", [
    ["template", (row) => row.template || "–"], ["tenant", (row) => row.tenant, NAME], ["model", (row) => row.model],
    ["jobs", (row) => row.jobs, true], ["running", (row) => row.running, true], ["calls/job", (row) => row.calls, true],
    ["mean", (row) => seconds(row.mean_s), true], ["longest", (row) => seconds(row.most_s), true],
    ["in calls", (row) => seconds(row.busy), true], ["cached", (row) => share(row.cached), true],
    ["failed", (row) => row.failed, true], ["slowest job", (row) => row.request_id ? request_link(row.request_id) : "–"],
  ]);
  const now = table("jobs with a call in flight", [
    ["job", (row, id) => id], ["tenant", (row) => row.tenant, NAME], ["template", (row) => row.template || "–"],
    ["calls", (row) => row.calls, true], ["open", (row) => row.open, true], ["since", (row) => seconds(row.since_s), true],
    ["prompt tokens", (row) => row.prompt_tokens, true], ["cached", (row) => share(row.cached), true],
    ["answered", (row) => row.output_tokens, true], ["last call", (row) => request_link(row.request_id)],
  ]);
  const left = el("p", { class: "dim" });
  main.replaceChildren(el("h2", {}, "Jobs: chains of calls that belong together"), counts,
    el("figure", {}, canvas, el("figcaption", {}, "mean seconds from a job's first call to the end of its last one, by "
      + "template: the first message of its prompts, which agents with one system prompt share")), templates.node, left,
    el("h2", {}, "Running"), now.node);
  return (view) => {
    const in_place = (rows) => Object.entries(rows).sort(([, a], [, b]) => a.place - b.place);
    const rows = in_place(view.templates);
    set(counts, view.state === "told" ? `${view.jobs} jobs known to the gateways, ${view.running} with a call in flight`
      : STATES[view.state]);
    const drawn = rows.filter(([, row]) => row.mean_s >= 0).slice(0, 20).map(([, row]) => ({
      lane: `${row.place} ${row.tenant}`, from: 0, until: row.mean_s, colour: hue(row.tenant), label: seconds(row.mean_s) }));
    lanes(canvas, drawn.map((bar) => bar.lane), drawn, [], {
      from: 0, until: Math.max(0.01, ...drawn.map((bar) => bar.until)), told: since });
    templates.update(rows);
    set(left, view.left_out ? `${view.left_out} more templates` : "");
    now.update(in_place(view.now));
  };
}

"""Writes the Grafana dashboards beside this file, and the alerts as Kubernetes has them: `make dashboards`.

A panel is a title, a unit and queries; the rest is the same for all. `instance` is the process's name wherever the mesh
is deployed.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
DASHBOARDS = HERE / "dashboards"
ALERTS = HERE.parent / "prometheus" / "alerts.yml"
RULE = HERE.parent / "helm" / "hmas" / "files" / "prometheusrule.yaml"
COLUMNS, HEIGHT = 24, 8
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """`queries`: legend and PromQL. `kind`: a Grafana panel type."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    about: str = ""
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False
    thresholds: Sequence[tuple[str, float | None]] = field(default_factory=tuple)


def quantiles(metric: str, by: str = "pool") -> list[tuple[str, str]]:
    return [
        (
            f"{{{{{by}}}}} p{q}",
            f"histogram_quantile(0.{q}, sum by (le, {by}) (rate({metric}_bucket[$__rate_interval])))",
        )
        for q in (50, 95, 99)
    ]


JUDGED = 'hmas_gateway_settled_total{pool=~"$pool", verdict!="unjudged"}'
OK = 'hmas_gateway_settled_total{pool=~"$pool", verdict="ok"}'


def attainment(by: str) -> str:
    """Share of judged requests that kept their SLOs; a refused or failed one did not."""
    return f"sum by ({by}) (rate({OK}[$__rate_interval])) / sum by ({by}) (rate({JUDGED}[$__rate_interval]))"


GOOD = (("red", None), ("orange", 0.9), ("green", 0.97))

SERVICE = [
    Panel(
        "Goodput",
        "reqps",
        [
            ("{{pool}} ok", f"sum by (pool) (rate({OK}[$__rate_interval]))"),
            ("{{pool}} offered", f"sum by (pool) (rate({JUDGED}[$__rate_interval]))"),
        ],
        "Requests that kept both SLOs, beside all that were offered",
    ),
    Panel("SLO attainment", "percentunit", [("{{pool}}", attainment("pool"))], thresholds=GOOD),
    Panel(
        "How requests end",
        "reqps",
        [("{{verdict}}", 'sum by (verdict) (rate(hmas_gateway_settled_total{pool=~"$pool"}[$__rate_interval]))')],
        stacked=True,
    ),
    Panel("SLO attainment by tenant", "percentunit", [("{{tenant}}", attainment("tenant"))], width=12, thresholds=GOOD),
    Panel("SLO attainment by task", "percentunit", [("{{task}}", attainment("task"))], width=12, thresholds=GOOD),
    Panel("Time to first token", "s", quantiles("hmas_gateway_ttft_seconds"), "As clients see it"),
    Panel("Time per output token", "s", quantiles("hmas_gateway_tpot_seconds"), "As clients see it"),
    Panel("Whole request", "s", quantiles("hmas_gateway_request_seconds")),
    Panel(
        "Output tokens",
        "cps",
        [("{{pool}}", "sum by (pool) (rate(hmas_gateway_output_tokens_total[$__rate_interval]))")],
    ),
    Panel("Live requests", "short", [("{{instance}}", "hmas_gateway_live_requests")]),
    Panel(
        "Requests that stepped aside",
        "reqps",
        [("{{pool}}", "sum by (pool) (rate(hmas_gateway_relegated_total[$__rate_interval]))")],
        "Relegated: they would have missed their SLO anyway, or made several others miss theirs",
    ),
    Panel(
        "Outcomes other than finished",
        "reqps",
        [
            (
                "{{outcome}}",
                'sum by (outcome) (rate(hmas_gateway_requests_total{outcome!="finished"}[$__rate_interval])) > 0',
            ),
            (
                "{{outcome}} (invalid)",
                "sum by (outcome) (rate(hmas_gateway_invalid_requests_total[$__rate_interval])) > 0",
            ),
        ],
    ),
]

CONTROL = [
    Panel(
        "Topology in force",
        "none",
        [("{{pool}}: {{topology}}", 'hmas_meta_topology{pool=~"$pool"} == 1')],
        "Chosen by the meta controller",
        kind="state-timeline",
        width=24,
    ),
    Panel(
        "Emergency bypass, expired controls",
        "none",
        [
            ("bypass {{pool}}", 'hmas_meta_bypass{pool=~"$pool"}'),
            ("expired {{instance}}", "hmas_worker_control_expired"),
            ("frozen {{worker}}", "hmas_statera_frozen"),
        ],
        kind="state-timeline",
        width=24,
    ),
    Panel(
        "Decisions",
        "short",
        [
            (
                "{{kind}} by {{selector}}",
                'sum by (kind, selector) (increase(hmas_meta_decisions_total{pool=~"$pool"}[$__rate_interval]))',
            )
        ],
        stacked=True,
    ),
    Panel(
        "Switches at the workers",
        "short",
        [("{{instance}}", "increase(hmas_worker_topology_switches_total[$__rate_interval])")],
    ),
    Panel(
        "Mismatch M_ρ",
        "none",
        [("{{pool}}", 'hmas_qos_mismatch{pool=~"$pool"}')],
        "Arriving over served tokens, minus one",
    ),
    Panel(
        "Utilisation and its band",
        "percentunit",
        [
            ("{{instance}} {{engine}}", "hmas_worker_engine_utilisation"),
            ("upper edge {{worker}}", "hmas_statera_u_high"),
        ],
    ),
    Panel(
        "N_run",
        "short",
        [
            ("set-point {{worker}} {{engine}}", "hmas_statera_n_run"),
            ("in force {{instance}} {{engine}}", "hmas_worker_engine_n_run"),
        ],
    ),
    Panel(
        "B_token",
        "short",
        [("{{instance}} {{engine}}", "hmas_worker_engine_b_token")],
        "Decode tokens of an engine step, in force",
    ),
    Panel(
        "Step time in use",
        "percentunit",
        [("{{instance}} {{engine}}", "hmas_worker_engine_time_used")],
        "Of what a step has for sequences within the TPOT SLO worth keeping; from 100 % on nothing is granted, and 0 "
        "means that it limits nothing",
    ),
    Panel(
        "Fence coverage",
        "percentunit",
        [
            (
                "{{instance}}",
                'rate(hmas_worker_fence_total{covered="true"}[$__rate_interval]) / ignoring (covered) '
                "sum without (covered) (rate(hmas_worker_fence_total[$__rate_interval]))",
            )
        ],
        "Requests whose length stayed within the bound they were admitted with; the target is 1 - HMAS_FENCE_EPSILON",
        thresholds=(("red", None), ("green", 0.88)),
    ),
    Panel(
        "Fence factors",
        "short",
        [("{{worker}} {{predictor}} up to {{prompt_upto}}", "hmas_statera_fence_factor")],
        "Factor on the predicted 90 % quantile of a length, by predictor and prompt length",
    ),
    Panel(
        "Violation rates",
        "percentunit",
        [
            ("{{pool}} any", 'hmas_qos_violation_rate{pool=~"$pool"}'),
            ("{{pool}} TTFT", 'hmas_qos_ttft_violation_rate{pool=~"$pool"}'),
            ("{{pool}} TPOT", 'hmas_qos_tpot_violation_rate{pool=~"$pool"}'),
        ],
        "Over V_short, a few seconds",
    ),
]

ENGINES = [
    Panel("Requests queued", "short", [("{{instance}}", "hmas_worker_queued_requests")], stacked=True),
    Panel("Prompt tokens queued", "short", [("{{instance}}", "hmas_worker_queued_tokens")], stacked=True),
    Panel("Longest wait now", "s", [("{{pool}}", 'hmas_qos_oldest_wait_s{pool=~"$pool"}')]),
    Panel("Time queued", "s", quantiles("hmas_worker_queue_wait_seconds", "instance")),
    Panel("Running on the engine", "short", [("{{instance}} {{engine}}", "hmas_worker_engine_running")]),
    Panel(
        "Waiting inside the engine",
        "short",
        [("{{instance}} {{engine}}", "hmas_worker_engine_waiting")],
        "More than a few: the queue is where the scheduler cannot order it",
    ),
    Panel("KV cache in use", "percentunit", [("{{instance}} {{engine}}", "hmas_worker_engine_kv_usage")]),
    Panel("Engine step", "s", [("{{instance}} {{engine}}", "hmas_worker_engine_step_s")]),
    Panel(
        "Preemptions",
        "cps",
        [("{{instance}}", "rate(vllm:num_preemptions_total[$__rate_interval])")],
        "From the engine itself, where Prometheus reaches it",
    ),
    Panel(
        "Engines up", "none", [("{{instance}} {{engine}}", "hmas_worker_engine_up")], kind="state-timeline", width=12
    ),
    Panel(
        "Engines suspected",
        "none",
        [("{{instance}} {{engine}}", "hmas_worker_engine_suspected")],
        "Without a token for far longer than usual, until they give one",
        kind="state-timeline",
        width=12,
    ),
    Panel(
        "Runs given up because they stalled",
        "cps",
        [("{{instance}}", "rate(hmas_gateway_stalled_runs_total[$__rate_interval])")],
        width=12,
    ),
    Panel(
        "Attempts ended",
        "reqps",
        [
            (
                "{{instance}} {{outcome}}",
                "sum by (instance, outcome) (rate(hmas_worker_requests_total[$__rate_interval])) > 0",
            )
        ],
        width=12,
        stacked=True,
    ),
]

MESH = [
    Panel("Processes up", "none", [("{{instance}}", 'up{job="hmas"}')], kind="state-timeline", width=12),
    Panel("Connected to NATS", "none", [("{{instance}}", "hmas_nats_connected")], kind="state-timeline", width=12),
    Panel(
        "Requests left to the prior",
        "reqps",
        [
            ("{{reason}}", "sum by (reason) (rate(hmas_cognition_fallback_total[$__rate_interval]))"),
            ("perception: {{reason}}", "sum by (reason) (rate(hmas_perception_fallbacks_total[$__rate_interval]))"),
            ("prediction: {{reason}}", "sum by (reason) (rate(hmas_prediction_fallbacks_total[$__rate_interval]))"),
        ],
        "Cognition late, away or malformed; serving goes on",
    ),
    Panel(
        "A batch of cognition",
        "s",
        [
            (
                "gateway p99",
                "histogram_quantile(0.99, sum by (le) (rate(hmas_cognition_batch_seconds_bucket[$__rate_interval])))",
            ),
            (
                "perception p99",
                "histogram_quantile(0.99, sum by (le) (rate(hmas_perception_batch_seconds_bucket[$__rate_interval])))",
            ),
            (
                "prediction p99",
                "histogram_quantile(0.99, sum by (le) (rate(hmas_prediction_batch_seconds_bucket[$__rate_interval])))",
            ),
        ],
    ),
    Panel(
        "Costs predicted by",
        "reqps",
        [("{{model}}", "sum by (model) (rate(hmas_prediction_answers_total[$__rate_interval]))")],
        "catboost where model and card are known; what stands in for it elsewhere, or when it is late",
    ),
    Panel(
        "Error of predicted costs",
        "none",
        [("{{model}} {{cost}}", "max by (model, cost) (hmas_prediction_error)")],
        "Median |log(predicted / measured)| of the last requests, corrected: 0.1 is some 10 %",
    ),
    Panel(
        "Online correction of predicted costs", "none", [("{{worker}} {{hardware}} {{cost}}", "hmas_prediction_scale")]
    ),
    Panel("Workers connected", "short", [("{{instance}}", "hmas_gateway_workers_connected")]),
    Panel(
        "Placed without a worker",
        "short",
        [
            ("engines of {{instance}}", "hmas_gateway_bypass_engines"),
            ("requests/s of {{instance}}", "rate(hmas_gateway_bypass_runs_total[$__rate_interval])"),
        ],
        "Bypass: the engines' workers are silent, and gateways place requests by themselves",
    ),
    Panel(
        "Moves between workers",
        "cps",
        [
            (
                "attempts above requests",
                "sum(rate(hmas_gateway_attempts_total[$__rate_interval])) - "
                "sum(rate(hmas_gateway_requests_total[$__rate_interval]))",
            )
        ],
    ),
    Panel(
        "Messages lost or malformed",
        "cps",
        [
            ("{{instance}} {{reason}}", "rate(hmas_nats_dropped_total[$__rate_interval]) > 0"),
            ("{{instance}} {{message}}", "rate(hmas_wire_malformed_total[$__rate_interval]) > 0"),
        ],
    ),
    Panel("Resident memory", "bytes", [("{{instance}}", 'process_resident_memory_bytes{job="hmas"}')]),
    Panel(
        "CPU",
        "percentunit",
        [("{{instance}}", 'rate(process_cpu_seconds_total{job="hmas"}[$__rate_interval])')],
        "Of one core; a gateway or worker near 1 wants another copy",
    ),
    Panel("Restarts", "short", [("{{instance}}", 'changes(process_start_time_seconds{job="hmas"}[1h])')]),
    Panel(
        "Connections refused, slow clients",
        "cps",
        [
            ("{{reason}}", "sum by (reason) (rate(hmas_gateway_connections_refused_total[$__rate_interval]))"),
            ("too slow", "sum(rate(hmas_gateway_slow_clients_total[$__rate_interval]))"),
        ],
    ),
]

JOBS = [
    Panel(
        "Jobs on time",
        "percentunit",
        [
            (
                "of those with a budget",
                'sum(rate(hmas_gateway_jobs_total{verdict="on_time"}[$__rate_interval])) / '
                'sum(rate(hmas_gateway_jobs_total{verdict=~"on_time|late|failed"}[$__rate_interval]))',
            )
        ],
        "Jobs whose client stated a budget, and all that failed; counted a minute after their last call",
        thresholds=GOOD,
    ),
    Panel(
        "Jobs ended",
        "cps",
        [("{{verdict}}", "sum by (verdict) (rate(hmas_gateway_jobs_total[$__rate_interval]))")],
        "late and on_time by the budget that the client stated, ended without one, failed: a call did not finish",
        stacked=True,
    ),
    Panel("Jobs with a call in flight", "short", [("{{instance}}", "hmas_gateway_jobs_running")], stacked=True),
    Panel(
        "Time of a job",
        "s",
        [
            (
                f"p{q}",
                f"histogram_quantile(0.{q}, sum by (le) (rate(hmas_gateway_job_seconds_bucket[$__rate_interval])))",
            )
            for q in (50, 90, 99)
        ],
        "First call to the end of the last one, jobs without a failed call",
    ),
    Panel(
        "Calls of a job",
        "short",
        [
            (
                f"p{q}",
                f"histogram_quantile(0.{q}, sum by (le) (rate(hmas_gateway_job_stages_bucket[$__rate_interval])))",
            )
            for q in (50, 90)
        ],
    ),
    Panel(
        "Prompt tokens found in caches",
        "percentunit",
        [
            (
                "cached",
                'sum(rate(hmas_gateway_job_tokens_total{kind="cached"}[$__rate_interval])) / '
                'sum(rate(hmas_gateway_job_tokens_total{kind="prompt"}[$__rate_interval]))',
            )
        ],
        "As engines report it; nothing where they do not",
    ),
    Panel(
        "How jobs are found",
        "reqps",
        [("{{linked}}", "sum by (linked) (rate(hmas_gateway_job_calls_total[$__rate_interval]))")],
        "declared by the client, by the prompt's beginning, by the first message of its user, or new",
        stacked=True,
    ),
]

BOARDS = {
    "hmas-service": ("H-MAS / Service", SERVICE),
    "hmas-control": ("H-MAS / Control", CONTROL),
    "hmas-engines": ("H-MAS / Queues and engines", ENGINES),
    "hmas-jobs": ("H-MAS / Jobs", JOBS),
    "hmas-mesh": ("H-MAS / Mesh", MESH),
}


def panel(number: int, spec: Panel, x: int, y: int) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 70 if spec.kind == "state-timeline" else 10}
    if spec.stacked:
        custom |= {"fillOpacity": 40, "stacking": {"mode": "normal"}}
    defaults: dict[str, Any] = {"unit": spec.unit, "min": 0, "custom": custom}
    if spec.unit == "percentunit":
        defaults["max"] = 1
    if spec.thresholds:
        steps = [{"color": color, "value": value} for color, value in spec.thresholds]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        custom["thresholdsStyle"] = {"mode": "dashed"}
    return {
        "id": number,
        "type": spec.kind,
        "title": spec.title,
        "description": spec.about,
        "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": spec.width, "h": HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + i), "expr": expr, "legendFormat": legend, "datasource": DATASOURCE}
            for i, (legend, expr) in enumerate(spec.queries)
        ],
    }


def board(uid: str, title: str, panels: Sequence[Panel]) -> dict[str, Any]:
    placed, x, y = [], 0, 0
    for number, spec in enumerate(panels, 1):
        if x + spec.width > COLUMNS:
            x, y = 0, y + HEIGHT
        placed.append(panel(number, spec, x, y))
        x += spec.width
    pool = {
        "name": "pool", "type": "query", "datasource": DATASOURCE, "includeAll": True, "allValue": ".*", "multi": True,
        "query": "label_values(hmas_qos_queued, pool)", "refresh": 2, "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip
    return {
        "uid": uid,
        "title": title,
        "tags": ["hmas"],
        "schemaVersion": 41,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}, pool]},
        "links": [{"type": "dashboards", "tags": ["hmas"], "title": "H-MAS", "asDropdown": True}],
        "panels": placed,
    }


def rule() -> dict[str, Any]:
    """The alerts for the Prometheus operator."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "hmas"},
        "spec": {"groups": groups},
    }


def files() -> dict[Path, str]:
    """What is to stand where."""
    made = {
        DASHBOARDS / f"{uid}.json": json.dumps(board(uid, title, panels), indent=1, ensure_ascii=False) + "\n"
        for uid, (title, panels) in BOARDS.items()
    }
    made[RULE] = "# Written by deploy/grafana/build.py from alerts.yml.\n" + yaml.safe_dump(
        rule(), sort_keys=False, width=120
    )
    return made


def main() -> int:
    """`--check` writes nothing and fails where a file is stale."""
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path} is stale: run `make dashboards`")
        return 1 if stale else 0
    for path in stale:
        path.write_text(files()[path])
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

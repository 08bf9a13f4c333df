"""Runs the mesh with each perception in turn on the same arrivals, prompts and lengths."""

import asyncio
import os
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hmas.contracts.request import TaskType
from hmas.laws.slo import DEFAULT_IMPORTANCE, default_slo
from hmas.mesh.compare.cli import MAX_MODEL_LEN
from hmas.mesh.compare.engines import MAX_LAG_P99_S, read_lag, reset_lag
from hmas.mesh.compare.runs import DRAIN_S, mesh_target
from hmas.mesh.compare.workload import ReplayWorkload
from hmas.mesh.options import MeshOptions
from hmas.mesh.state import MeshState
from hmas.mesh.supervisor import Mesh
from hmas.perception.agent.backend import PromptView
from hmas.perception.settings import PerceptionSettings
from hmas_loadgen.plan import Api, LoadPlan
from hmas_loadgen.prompts import PromptBuilder
from hmas_loadgen.runner.run import run_load
from hmas_loadgen.traces.row import Trace

# The environment of the mesh's services with each perception.
PERCEPTIONS: dict[str, dict[str, str]] = {
    "shipped": {},
    "rules": {"HMAS_PERCEPTION_BACKEND": "rules"},
    "prior": {"HMAS_PERCEPTION_BACKEND": "prior"},
    "none": {"HMAS_PERCEPTION_ADDRESS": ""},
}


ANSWERS = "hmas_prediction_answers_total"  # costs predicted, by `model`


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Each run lasts `warmup_s` and then `scored_s` seconds. The two engines sustain some 6.8 requests/s."""

    rate_rps: float = 9.5
    warmup_s: float = 15.0
    scored_s: float = 60.0
    seeds: tuple[int, ...] = (1, 2, 3)
    perceptions: tuple[str, ...] = tuple(PERCEPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """One run. Shares are of the requests offered in it: `on_time` and `completed` of those after the warm-up; of all
    `answered` (by cognition), `by_catboost` (their costs), `tags` by source, and `by_prior` by reason. `errors` are the
    medians of |log(predicted / measured)| by model and cost. `perception_mb` is the memory of its process at the end.
    `reasons` say why the run is invalid."""

    perception: str
    seed: int
    offered: int
    on_time: float
    completed: float
    goodput_rps: float
    ttft_p50_s: float
    ttft_p95_s: float
    answered: float
    by_catboost: float
    tags: dict[str, float]
    by_prior: dict[str, float]
    errors: dict[str, float]
    perception_cpu_s: float
    perception_mb: float
    engine_lag_p99_s: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResults:
    """All runs. `right_types` is the share of prompts of which a backend says the type that they were written for;
    `load` is the machine's mean load (1 min) at the begin of each run."""

    setup: Setup
    right_types: dict[str, float]
    cpus: int
    runs: list[LiveRun] = field(default_factory=list)
    load: list[float] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        return asdict(self)


def trace_of(setup: Setup, seed: int) -> Trace:
    """Returns the requests of a seed. Each is judged by its type's default SLO, which it does not state, so that only
    perception can tell it; all are equally important."""
    trace = ReplayWorkload(None, MAX_MODEL_LEN).at(setup.rate_rps, setup.warmup_s + setup.scored_s, seed)
    rows = [
        replace(row, importance=DEFAULT_IMPORTANCE, slo=default_slo(row.task or TaskType.UNKNOWN)) for row in trace.rows
    ]
    return trace.derived(rows, "default SLOs of the task types")


async def measure(setup: Setup, folder: Path, say: Callable[[str], None]) -> LiveResults:
    """Runs every perception for each seed, one after another; each seed begins with another one."""
    found = LiveResults(setup=setup, right_types=right_types(setup), cpus=os.cpu_count() or 1)
    for turn, seed in enumerate(setup.seeds):
        names = setup.perceptions
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            found.load.append(os.getloadavg()[0])
            run = await _run(setup, name, seed, folder / f"{name}-{seed}")
            found.runs.append(run)
            say(f"{name}, seed {seed}: {run.on_time:.1%} on time, {run.goodput_rps:.2f} req/s {' '.join(run.reasons)}")
    return found


def right_types(setup: Setup) -> dict[str, float]:
    """Returns how often the backends that read prompts say the type for which a prompt was written."""
    shares = {}
    for name in ("shipped", "rules"):
        settings = PerceptionSettings(perception_backend="rules") if name == "rules" else PerceptionSettings()
        _, backend = settings.backend()
        right = total = 0
        for seed in setup.seeds:
            trace = trace_of(setup, seed)
            builder = PromptBuilder(seed, Api.CHAT, trace.block_tokens)
            views = [
                PromptView(text=builder.text(index, row), prompt_tokens=row.input_tokens, model="", tenant="",
                           max_tokens=None)
                for index, row in enumerate(trace.rows)
            ]  # fmt: skip
            estimates = backend.estimate(views)
            right += sum(e is not None and e.task is row.task for e, row in zip(estimates, trace.rows, strict=True))
            total += len(views)
        shares[name] = right / total
    return shares


async def _run(setup: Setup, name: str, seed: int, folder: Path) -> LiveRun:
    options = MeshOptions(port=0, data_dir=folder, replay=True, log_level="error", extra_env=PERCEPTIONS[name])
    mesh = await Mesh(options).__aenter__()
    try:
        state = mesh.plan.state({})
        target = replace(mesh_target(state), send_slo=False)
        plan = LoadPlan(
            name=name, trace=trace_of(setup, seed), target=target, seed=seed,
            window_s=setup.warmup_s + setup.scored_s, warmup_s=setup.warmup_s, drain_s=DRAIN_S,
        )  # fmt: skip
        reset_lag(state.engine_urls)
        result = await run_load(plan)
        lag = read_lag(state.engine_urls)
        assert lag is not None
        told = {each: await asyncio.to_thread(samples, state, each) for each in ("gateway", "perception", "prediction")}
    finally:
        await mesh.stop()
    score, offered = result.score(), len(plan.trace.rows)
    late = [] if lag.valid else [f"engine steps lag {lag.p99_s * 1e3:.1f} ms at p99 (at most {MAX_LAG_P99_S * 1e3:g})"]
    left = by_label(told["perception"], "hmas_perception_fallbacks_total", "reason")
    perceived = by_label(told["perception"], "hmas_perception_prompts_total", "source")
    return LiveRun(
        perception=name,
        seed=seed,
        offered=score.offered,
        on_time=score.goodput_rate,
        completed=score.completed / max(1, score.offered),
        goodput_rps=score.goodput,
        ttft_p50_s=score.ttft_p50_s,
        ttft_p95_s=score.ttft_p95_s,
        answered=1.0 - sum(by_label(told["gateway"], "hmas_cognition_fallback_total", "reason").values()) / offered,
        by_catboost=by_label(told["prediction"], ANSWERS, "model").get("catboost", 0.0) / offered,
        tags={source: count / offered for source, count in perceived.items()},
        by_prior={reason: count / offered for reason, count in left.items()},
        errors=prediction_errors(told["prediction"]),
        perception_cpu_s=sum(value for metric, _, value in told["perception"] if metric == "process_cpu_seconds_total"),
        perception_mb=max(v for metric, _, v in told["perception"] if metric == "process_resident_memory_bytes") / 1e6,
        engine_lag_p99_s=lag.p99_s,
        reasons=(*result.reasons, *late),
    )  # fmt: skip


Sample = tuple[str, dict[str, str], float]


def samples(state: MeshState, service: str) -> list[Sample]:
    """Returns the metrics of a service as (name, labels, value)."""
    with urllib.request.urlopen(state.ops_request(f"{state.ops_urls[service]}/metrics"), timeout=10) as reply:
        families = text_string_to_metric_families(reply.read().decode())
        return [(s.name, dict(s.labels), s.value) for family in families for s in family.samples]


def prediction_errors(found: list[Sample]) -> dict[str, float]:
    """Returns what the prediction service tells of its errors, by "model cost"."""
    return {
        f"{labels['model']} {labels['cost']}": value
        for metric, labels, value in found
        if metric == "hmas_prediction_error" and value == value
    }


def by_label(found: list[Sample], metric: str, label: str) -> dict[str, float]:
    """Returns the values of a metric by one of its labels."""
    return {labels[label]: value for name, labels, value in found if name == metric}

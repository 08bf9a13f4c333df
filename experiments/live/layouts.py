"""The same requests in real time with a layout that the controller chooses, with a mixed pool, and without a mesh."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from experiments.live.command import in_real_time, written
from experiments.live.measure import samples
from experiments.pages.goal import Goal
from experiments.pages.template import percent
from experiments.study import Options, Study
from hmas.engine.core.profile import EngineProfile, builtin_profile
from hmas.mesh.compare.engines import read_lag, reset_lag
from hmas.mesh.compare.runs import Replay, direct_target, mesh_target
from hmas.mesh.options import MeshOptions
from hmas.mesh.supervisor import Mesh
from hmas_lab.sim.experiment import chunked
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.runner.run import run_load
from hmas_loadgen.traces.row import Trace, TraceRow

PROFILE, ENGINES = "llama2-70b-a100x4", 2
CHUNK_TOKENS = 1024  # per step, as on the page about regimes
CAPACITY_RPS = 3.72  # λ* of these engines under plain FCFS, by docs/results/regimes.md
CHOSEN, MIXED, DIRECT = "chosen", "mixed", "direct"
LAYOUTS = {CHOSEN: "auto", MIXED: "mixed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSetup:
    """Each run offers requests for `warmup_s`, in which the controller learns the engines' pace and chooses, and then
    for `scored_s` seconds; what is unfinished `drain_s` later is cut off and late."""

    rate_rps: float = 5.2
    warmup_s: float = 60.0
    scored_s: float = 120.0
    drain_s: float = 120.0  # an answer of these engines takes half a minute
    seeds: tuple[int, ...] = (1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRun:
    """One run: shares of the scored requests, how many of them were `unfinished` at its end, `classes` of pace then,
    and why it is invalid."""

    system: str
    seed: int
    on_time: float
    esg_rate: float
    ttft_p50_s: float
    unfinished: int
    classes: int
    lag_p99_s: float
    reasons: tuple[str, ...]


def engine_profile() -> EngineProfile:
    return chunked(builtin_profile(PROFILE), CHUNK_TOKENS)


def profile_text() -> str:
    """Returns the profile as a file that the engine reads."""
    profile = engine_profile()
    body: dict[str, Any] = {name: getattr(profile, name) for name in ("source", "model", "hardware", "card_gb")}
    return yaml.safe_dump({PROFILE: body | {"cost": asdict(profile.cost), "limits": asdict(profile.limits)}})


def trace_of(setup: LayoutSetup, seed: int) -> Trace:
    """Returns the requests that the simulator offers for this seed, with the SLOs that their clients state."""
    seconds = setup.warmup_s + setup.scored_s
    workload = build(WorkloadSpec(kind="mix", duration_s=seconds, stated=True), setup.rate_rps, seed)
    rows = [
        TraceRow(
            arrival_s=each.request.arrival_s,
            input_tokens=each.request.prompt_tokens,
            output_tokens=each.output_tokens,
            task=each.task,
            slo=each.slo,
            tenant=each.request.tenant,
            importance=each.request.importance,
        )
        for each in workload.fitting(engine_profile()).requests
    ]
    return Trace(name="mix", rows=tuple(rows), span_s=seconds)


async def measure(setup: LayoutSetup, folder: Path, say: Callable[[str], None]) -> list[LayoutRun]:
    """Runs every system for each seed, one after another; each seed begins with another one."""
    systems, found = (CHOSEN, MIXED, DIRECT), []
    profile = folder / "profile.yaml"
    await asyncio.to_thread(profile.write_text, profile_text(), encoding="utf-8")
    for turn, seed in enumerate(setup.seeds):
        for system in (*systems[turn % 3 :], *systems[: turn % 3]):
            found.append(run := await _run(setup, system, seed, profile, folder / f"{system}-{seed}"))
            say(f"{system}, seed {seed}: {run.on_time:.1%} on time, {run.classes} classes {' '.join(run.reasons)}")
    return found


async def _run(setup: LayoutSetup, system: str, seed: int, profile: Path, folder: Path) -> LayoutRun:
    env = {"HMAS_LAYOUT": LAYOUTS.get(system, "mixed")}
    options = MeshOptions(
        port=0, data_dir=folder, replay=True, log_level="error", profile=str(profile), emulated=ENGINES,
        workers=1, extra_env=env,
    )  # fmt: skip
    mesh = await Mesh(options).__aenter__()
    try:
        state = mesh.plan.state({})
        plan = LoadPlan(
            name=system, trace=trace_of(setup, seed), seed=seed, drain_s=setup.drain_s, warmup_s=setup.warmup_s,
            target=direct_target(state) if system == DIRECT else mesh_target(state),
            window_s=setup.warmup_s + setup.scored_s,
        )  # fmt: skip
        reset_lag(state.engine_urls)
        replay = Replay(await run_load(plan), read_lag(state.engine_urls))
        told = await asyncio.to_thread(samples, state, "meta")
    finally:
        await mesh.stop()
    assert replay.lag is not None
    classes = [int(value) for name, _, value in told if name == "hmas_meta_pace_classes"]
    return LayoutRun(
        system=system,
        seed=seed,
        on_time=replay.score.goodput_rate,
        esg_rate=replay.score.esg_rate,
        ttft_p50_s=replay.score.ttft_p50_s,
        unfinished=replay.score.offered - replay.score.completed,
        classes=0 if system == DIRECT else max(classes, default=1),
        lag_p99_s=replay.lag.p99_s,
        reasons=tuple(replay.reasons),
    )


def measured(options: Options) -> tuple[LayoutSetup, list[LayoutRun]]:
    """Returns the runs: made now, or with `pages_only` those that lie in `options.out`."""
    if options.pages_only:
        kept = written(options.out / "live-layouts.json")
        setup = LayoutSetup(**kept["setup"] | {"seeds": tuple(kept["setup"]["seeds"])})
        return setup, [LayoutRun(**run | {"reasons": tuple(run["reasons"])}) for run in kept["runs"]]
    setup = LayoutSetup(rate_rps=options.rate, scored_s=options.seconds, seeds=tuple(options.numbers))
    return setup, in_real_time(lambda folder: measure(setup, folder, print))


def page_of(setup: LayoutSetup, runs: Sequence[LayoutRun]) -> dict[str, object]:
    return {
        "setup": setup, "engines": ENGINES, "capacity": CAPACITY_RPS, "profile": PROFILE, "tokens": CHUNK_TOKENS,
        "rows": [_row(system, [run for run in runs if run.system == system]) for system in (CHOSEN, MIXED, DIRECT)],
        "goals": [goal.line for goal in goals(setup, runs)], "esg": _esg_over_direct(runs),
        "lag_ms": 1000 * max(run.lag_p99_s for run in runs),
        "invalid": [f"{run.system}, seed {run.seed}: {'; '.join(run.reasons)}" for run in runs if run.reasons],
    }  # fmt: skip


def document_of(setup: LayoutSetup, runs: Sequence[LayoutRun]) -> dict[str, Any]:
    return {"setup": asdict(setup), "runs": [asdict(run) for run in runs]}


def goals(setup: LayoutSetup, runs: Sequence[LayoutRun]) -> list[Goal]:
    """Returns what is asked of the seeds whose runs are all valid, and what came; None: it holds in these, but others
    have invalid runs."""
    by = {(run.system, run.seed): run for run in runs}
    bad = {run.seed for run in runs if run.reasons}
    valid = [{s: by[s, seed] for s in (CHOSEN, MIXED, DIRECT)} for seed in setup.seeds if seed not in bad]

    def goal(words: str, holds: Callable[[dict[str, LayoutRun]], bool]) -> Goal:
        met = sum(map(holds, valid))
        whole = met == len(setup.seeds)
        told = f"in {met} of {len(valid)} seeds whose runs are all valid"
        return Goal(words, told, False if met < len(valid) else True if whole else None)

    return [
        goal("Chosen ahead of mixed", lambda of: of[CHOSEN].on_time > of[MIXED].on_time),
        goal("Mixed ahead of direct", lambda of: of[MIXED].on_time > of[DIRECT].on_time),
        goal("ESG of chosen at least direct's", lambda of: of[CHOSEN].esg_rate >= of[DIRECT].esg_rate),
    ]


def _esg_over_direct(runs: Sequence[LayoutRun]) -> float:
    """Returns the ESG of the chosen layout over that without a mesh, less 1."""
    chosen, direct = (fmean(run.esg_rate for run in runs if run.system == system) for system in (CHOSEN, DIRECT))
    return chosen / direct - 1.0


def _row(system: str, runs: Sequence[LayoutRun]) -> tuple[str, ...]:
    return (
        system,
        percent(fmean(run.on_time for run in runs)),
        ", ".join(percent(run.on_time) for run in runs),
        f"{fmean(run.esg_rate for run in runs):.0f}",
        f"{fmean(run.ttft_p50_s for run in runs):.2f}",
        ", ".join(str(run.unfinished) for run in runs),
        "-" if system == DIRECT else ", ".join(str(run.classes) for run in runs),
    )


STUDY: Study[None, tuple[LayoutSetup, list[LayoutRun]]] = Study(
    name="live-layouts",
    about="Serves the same requests in real time with a layout that the controller chooses, with a mixed pool, and "
    "without a mesh, on two emulated engines whose steps are long beside the tightest TPOT SLOs. It takes some 35 "
    "minutes.",
    template=Path(__file__).with_name("layouts.md.j2"),
    takes=("out", "seeds", "seconds", "rate", "pages_only"),
    defaults=Options(rate=LayoutSetup().rate_rps, seconds=LayoutSetup().scored_s, seeds=len(LayoutSetup().seeds)),
    rows=lambda options, found: [measured(options)],
    values=lambda rows, options, found: page_of(*rows[0]),
    also=lambda rows, options, found: {"live-layouts.json": document_of(*rows[0])},
)

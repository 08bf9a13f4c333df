"""The mesh in virtual time: the same everywhere, conserving, blind to the future, and equal to the live host."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.control_agents import AskSelector, MetaEffect, QosEffect, StateraEffect
from hmas.contracts.gateway import GatewayEffect
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import TaskType
from hmas.contracts.worker import WorkerEffect
from hmas.meta.agent.selectors.llm import parse_answer
from hmas.meta.agent.selectors.selector import Choice
from hmas.runtime.host import AgentHost
from hmas.sim import scripted_llm
from hmas.sim.baselines.run import run_baseline
from hmas.sim.cognition import SimCognition
from hmas.sim.effect_log import EffectLog
from hmas.sim.estimators import CLAIMANT, CLAIMED, NoisyOracle, ProfileCosts, estimator
from hmas.sim.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.systems import MESHES
from hmas.sim.workload import OfferedRequest, Workload
from tests.sim.sim_cases import SMALL, offered, random_workload

LOADED = random_workload(5, 14.0, 30.0)


def simulate(setup: MeshSetup, workload: Workload, seed: int = 1) -> tuple[MeshSim, EffectLog]:
    log = EffectLog(keep=True)
    mesh = MeshSim(setup, SMALL, 2, workload, seed, log=log)
    mesh.result = mesh.run()  # type: ignore[attr-defined]
    return mesh, log


def test_same_seed_same_effects_another_seed_others() -> None:
    first, second = (simulate(MeshSetup(), LOADED)[1].digest() for _ in range(2))
    assert first == second
    assert simulate(MeshSetup(), LOADED, seed=2)[1].digest() != first


def test_the_hash_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-c", "from hmas.sim.cli import app; app()", "run", "experiments/smoke.yaml"]
    root = Path(__file__).parents[2]
    hashes = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [*command, "--seed", "7", "--print-hash"],
            cwd=root,
            env={"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        hashes.add(done.stdout.strip().splitlines()[-1])
    assert len(hashes) == 1
    assert len(hashes.pop()) == 64


@pytest.mark.parametrize("name", ["hmas", "frozen-statera", "prior-cognition", "fixed-wfq", "fixed-two_lane"])
@pytest.mark.parametrize("workers", [1, 2])
def test_every_request_settles_once_with_its_own_length(name: str, workers: int) -> None:
    mesh, _ = simulate(replace(MESHES[name], workers=workers), LOADED)
    settlements = mesh.result.settlements  # type: ignore[attr-defined]
    assert [s.request_id for s in settlements] == [r.id for r in LOADED.requests]
    assert all(s.outcome is Outcome.FINISHED for s in settlements)
    assert [s.output_tokens for s in settlements] == [r.output_tokens for r in LOADED.requests]
    assert all(s.ttft_s is not None and s.last_token_s >= s.ttft_s > 0.0 for s in settlements)
    for endpoint in mesh.endpoints.values():
        assert endpoint.engine.core.kv.free == SMALL.limits.num_gpu_blocks


def test_what_does_not_end_before_the_cut_counts_as_not_finished() -> None:
    mesh = MeshSim(MeshSetup(), SMALL, 1, LOADED, 1, cutoff_s=0.0)
    settlements = mesh.run().settlements
    assert len(settlements) == len(LOADED.requests)
    assert {s.outcome for s in settlements} == {Outcome.FINISHED, Outcome.TIMED_OUT}


def test_a_refused_request_is_settled_as_refused() -> None:
    giant = replace(offered(999, 1.0, 8000, 10))
    workload = replace(LOADED, requests=(*LOADED.requests[:20], giant))
    mesh, _ = simulate(MeshSetup(), replace(workload, requests=tuple(sorted(workload.requests, key=_arrival))))
    outcomes = {s.request_id: s.outcome for s in mesh.result.settlements}  # type: ignore[attr-defined]
    assert outcomes["r999"] is Outcome.NEVER_FITS
    assert sum(o is Outcome.FINISHED for o in outcomes.values()) == 20


def _arrival(request: OfferedRequest) -> float:
    return request.request.arrival_s


# --- leak check


def _recorded(workload: Workload) -> Workload:
    """Predictions that were made once and do not follow the truth."""
    rows = tuple(
        replace(r, recorded=(TaskType.DIALOGUE, float(20 + 7 * (i % 40)), float(80 + 7 * (i % 40))))
        for i, r in enumerate(workload.requests)
    )
    return replace(workload, requests=rows)


def _time(line: str) -> float:
    return float(line.split(" ", 1)[0])


@pytest.mark.parametrize("pin", [None, TopologyName.SRTF, TopologyName.FCFS])
def test_true_lengths_change_no_decision_before_they_show(pin: TopologyName | None) -> None:
    """Other true lengths for all requests that are still queued at 12 s: everything stays the same until the first of
    them has ended, in one run or the other."""
    setup, cut_s = MeshSetup(estimator="recorded", pin=pin), 12.0
    workload = _recorded(random_workload(9, 30.0, 25.0))
    mesh, log = simulate(setup, workload)
    started = {
        line.split("request_id='")[1].split("'")[0]
        for line in log.lines
        if "StartRun(" in line and _time(line) <= cut_s
    }
    queued = {r.id for r in workload.requests if r.request.arrival_s <= cut_s and r.id not in started}
    assert len(queued) > 30
    changed = replace(
        workload,
        requests=tuple(
            replace(r, output_tokens=max(2, (r.output_tokens * 7) % 611)) if r.id in queued else r
            for r in workload.requests
        ),
    )
    other, other_log = simulate(setup, changed)
    ends = [m.journeys[i].engine_last_s for m in (mesh, other) for i in queued]
    shown_s = min(end for end in ends if end is not None)
    before, after = ([line for line in x.lines if _time(line) < shown_s] for x in (log, other_log))
    assert shown_s > cut_s
    assert any(_time(line) > cut_s for line in before)
    assert before == after
    assert log.digest() != other_log.digest()


# --- the live host and the simulator


class _Recorder:
    """An agent that writes down what it is told and what it answers."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.script: list[tuple[float, object]] = []
        self.effects: list[object] = []

    def step(self, now_s: float, event: object) -> list[object]:
        effects: list[object] = self.agent.step(now_s, event)
        self.script.append((now_s, event))
        self.effects += effects
        return effects


def test_one_script_gives_the_same_effects_in_the_live_host() -> None:
    workload = random_workload(5, 14.0, 12.0)
    setup = MeshSetup()
    mesh, fresh = (MeshSim(setup, SMALL, 2, workload, 1) for _ in range(2))
    places: list[tuple[Callable[[MeshSim], object], str]] = [
        (lambda m: m.gateways["g0"], "agent"),
        (lambda m: m.workers["w0"], "agent"),
        (lambda m: m, "_qos"),
        (lambda m: m, "_meta"),
        (lambda m: m, "_statera"),
    ]
    recorders = []
    for owner, name in places:
        recorder = _Recorder(getattr(owner(mesh), name))
        setattr(owner(mesh), name, recorder)
        recorders.append(recorder)
    mesh.run()
    for recorder, (owner, name) in zip(recorders, places, strict=True):
        clock = iter([now_s for now_s, _ in recorder.script])
        live: list[object] = []
        host: AgentHost[Any, Any] = AgentHost(getattr(owner(fresh), name), live.append, partial(next, clock))
        for _, event in recorder.script:
            host.post(event)
        assert live
        assert live == recorder.effects


# --- cognition


def test_cognition_answers_in_batches_on_one_server() -> None:
    mesh = MeshSim(MeshSetup(), SMALL, 1, random_workload(1, 1.0, 1.0), 1)
    answers: list[tuple[float, str]] = []
    config = replace(mesh.setup.cognition, fixed_s=0.1, per_request_s=0.01, max_batch=2, network_s=0.0)
    cognition = SimCognition(
        mesh.heap,
        config,
        NoisyOracle(0.0, 1.0, 1),
        ProfileCosts(SMALL, 1, 0.0, 1),
        lambda r, a: answers.append((mesh.heap.now_s, r.id)),
    )
    for i in range(4):
        mesh.heap.at(0.0, cognition.ask, offered(i, 0.0, 10, 10))
    mesh.heap.run(1.0)
    assert [r for _, r in answers] == ["r0", "r1", "r2", "r3"]
    assert [round(t, 3) for t, _ in answers] == [0.11, 0.23, 0.23, 0.34]


def test_the_noisy_oracle_is_as_wrong_as_it_says() -> None:
    from math import log
    from statistics import stdev

    oracle = estimator("noisy", 0.35, 0.942, 3)
    rows = [offered(i, 0.0, 100, 300) for i in range(2000)]
    tags = [oracle.tags(r) for r in rows]
    errors = [log(t.output_tokens / 300) for t in tags if t is not None]
    assert stdev(errors) == pytest.approx(0.35, rel=0.05)
    right = sum(t is not None and t.task is r.task for t, r in zip(tags, rows, strict=True)) / len(rows)
    assert right == pytest.approx(0.942 + 0.058 / 13, abs=0.015)
    assert [oracle.tags(r) for r in reversed(rows)] == tags[::-1]


def test_estimators_are_named() -> None:
    with pytest.raises(ValueError, match="perfect, noisy, short-claims, rules, recorded, prior"):
        estimator("guess", 0.1, 0.9, 1)
    assert estimator("prior", 0.1, 0.9, 1).tags(offered(0, 0.0, 10, 10)) is None
    assert estimator("recorded", 0.1, 0.9, 1).tags(offered(0, 0.0, 10, 10)) is None
    claims = estimator("short-claims", 0.1, 0.9, 1)
    honest, liar = (claims.tags(offered(0, 0.0, 10, 100, tenant=tenant)) for tenant in ("t", CLAIMANT))
    assert honest is not None
    assert liar is not None
    assert liar.output_tokens == pytest.approx(CLAIMED * honest.output_tokens)
    rules = estimator("rules", 0.1, 0.9, 1).tags(
        replace(offered(0, 0.0, 10, 10), prompt="Translate this into German: hi")
    )
    assert rules is not None
    assert rules.task is TaskType.TRANSLATION


# --- control in virtual time


def test_the_fence_keeps_memory_from_running_out() -> None:
    """With half the memory the same engines preempt where nobody reserves, and hardly ever behind the fence."""
    scarce = replace(SMALL, limits=replace(SMALL.limits, num_gpu_blocks=256))
    workload = random_workload(5, 25.0, 30.0, output=5.0)
    unfenced = run_baseline("vllm", workload, scarce, 2, 1)
    result = MeshSim(MeshSetup(pin=TopologyName.FCFS), scarce, 2, workload, 1).run()
    assert unfenced.run.preemptions > 100
    assert result.run.preemptions < 0.01 * len(workload.requests)  # a bound is outgrown, seldom the room
    assert all(s.outcome is Outcome.FINISHED for s in result.settlements)
    assert result.run.fence_checked > 0.99 * len(workload.requests)  # the last report may come after the last end
    assert result.run.fence_misses / result.run.fence_checked == pytest.approx(0.1, abs=0.03)  # epsilon of Eq. 4


def test_a_scripted_answer_takes_the_way_of_a_language_model() -> None:
    mesh, log = simulate(MESHES["meta-scripted-llm"], random_workload(5, 20.0, 60.0))
    assert any("AskSelector(" in line for line in log.lines)
    assert any("selector='llm'" in line for line in log.lines)
    assert not any("kind='rejected'" in line for line in log.lines)
    for view in mesh.views:
        ask = AskSelector(ask=1, view=view, current=TopologyName.SJF, hints=Hints(), timeout_s=10.0)
        assert isinstance(parse_answer(scripted_llm.answer(ask)), Choice)


def test_every_effect_has_a_handler() -> None:
    """Otherwise an effect that is new would be lost in the simulator, where nothing else would tell."""
    mesh = MeshSim(MeshSetup(), SMALL, 2, LOADED, 1)
    (worker,) = mesh.workers.values()
    for effects, handlers in (
        (WorkerEffect, worker._handlers),
        (GatewayEffect, mesh.gateways["g0"]._handlers),
        (QosEffect, mesh._handlers["qos"]),
        (MetaEffect, mesh._handlers["meta"]),
        (StateraEffect, mesh._handlers["statera"]),
    ):
        assert set(handlers) == set(get_args(effects))

"""The mesh in virtual time: the same everywhere, conserving, blind to the future, and equal to the live host."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.control_agents import AskSelector, MetaEffect, QosEffect, StateraEffect
from hmas.contracts.gateway import GatewayEffect
from hmas.contracts.outcome import Outcome
from hmas.contracts.questions import FallbackReason
from hmas.contracts.request import Cost, TagSource, TaskType
from hmas.contracts.worker import WorkerEffect
from hmas.meta.agent.selectors.llm import parse_answer
from hmas.meta.agent.selectors.selector import Choice
from hmas.prediction.agent import PredictionAgent, PredictionConfig
from hmas.prediction.agent.agent import PredictItem
from hmas.prediction.agent.backend import CostQuery
from hmas.runtime.host import AgentHost, raise_it
from hmas.sim import scripted_llm
from hmas.sim.effect_log import EffectLog
from hmas.sim.estimators import CLAIMANT, CLAIMED, cost_model, estimator
from hmas.sim.processes.cognition import Prediction
from hmas.sim.processes.fleet import run_fleet
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.processes.model_server import ModelServer
from hmas.sim.setup import MeshSetup
from hmas.sim.times import ModelTimes, measured_times
from hmas.sim.vllm import VLLM
from hmas.sim.workload import OfferedRequest, Workload
from hmas.statera.agent.config import FenceConfig, StateraConfig
from hmas_lab.sim.systems import MESHES, NOISY, WHOLE_BOUNDS
from tests.sim.sim_cases import SMALL, offered, random_workload

LOADED = random_workload(5, 14.0, 30.0)


def simulate(setup: MeshSetup, workload: Workload, seed: int = 1) -> tuple[MeshSim, EffectLog]:
    log = EffectLog(keep=True)
    mesh = MeshSim(setup, SMALL, 2, workload, seed, log=log)
    mesh.result = mesh.run()  # type: ignore[attr-defined]
    return mesh, log


def test_same_seed_same_effects_another_seed_others() -> None:
    noisy = MeshSetup(estimator="noisy")
    first, second = (simulate(noisy, LOADED)[1].digest() for _ in range(2))
    assert first == second
    assert simulate(noisy, LOADED, seed=2)[1].digest() != first


@pytest.mark.long
def test_the_hash_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-c", "from hmas_lab.sim.cli import app; app()", "run", "experiments/smoke.yaml"]
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
        replace(r, recorded=(TaskType.DIALOGUE, 0.9, 20.0 + 7 * (i % 40), 80.0 + 7 * (i % 40)))
        for i, r in enumerate(workload.requests)
    )
    return replace(workload, requests=rows)


def _time(line: str) -> float:
    return float(line.split(" ", 1)[0])


@pytest.mark.parametrize(
    "pin", [None, *(pytest.param(p, marks=pytest.mark.long) for p in (TopologyName.SJF, TopologyName.FCFS))]
)
def test_true_lengths_change_no_decision_before_they_show(pin: TopologyName | None) -> None:
    """Other true lengths for all requests that are still queued at 12 s: everything stays the same until the first of
    them has ended, in one run or the other."""
    setup, cut_s = MeshSetup(pin=pin), 12.0
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


def _before_anything_is_seen(costs: str, slower: float) -> list[str]:
    """The effects until the first token of a run on engines that take `slower` times as long."""
    cost = SMALL.cost
    profile = replace(SMALL, cost=replace(cost, **{f.name: slower * getattr(cost, f.name) for f in fields(cost)}))
    log = EffectLog(keep=True)
    mesh = MeshSim(MeshSetup(costs=costs), profile, 2, _recorded(random_workload(9, 60.0, 5.0)), 1, log=log)
    mesh.run()
    seen_s = min(j.engine_first_s for j in mesh.journeys.values() if j.engine_first_s is not None)
    return [line for line in log.lines if _time(line) < seen_s]


def test_the_engine_s_own_costs_change_no_decision_before_they_show() -> None:
    """Prediction as it ships does not know the emulated engine's coefficients; the oracle does, and is found."""
    quick, slow = (_before_anything_is_seen("shipped", slower) for slower in (1.0, 3.0))
    shared = min(len(quick), len(slow))
    assert shared > 10
    assert any("prediction AnswerCall(" in line for line in quick[:shared])
    assert quick[:shared] == slow[:shared]
    quick, slow = (_before_anything_is_seen("engine", slower) for slower in (1.0, 3.0))
    assert quick[: min(len(quick), len(slow))] != slow[: min(len(quick), len(slow))]


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
        (lambda m: m.control, "qos"),
        (lambda m: m.control, "meta"),
        (lambda m: m.control, "statera"),
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
        host: AgentHost[Any, Any] = AgentHost(
            getattr(owner(fresh), name), live.append, partial(next, clock), failed=raise_it
        )
        for _, event in recorder.script:
            host.post(event)
        assert live
        assert live == recorder.effects


# --- cognition


def test_a_service_runs_one_batch_at_a_time_and_answers_within_its_budget() -> None:
    mesh = MeshSim(MeshSetup(), SMALL, 1, random_workload(1, 1.0, 1.0), 1)
    answers: list[tuple[float, float]] = []
    agent = PredictionAgent(PredictionConfig(max_batch=2), FixedCosts(9.0))
    times = ModelTimes(((1, 0.11), (2, 0.12)), budget_s=0.25, network_s=0.0)
    server: Prediction = ModelServer(mesh, "prediction", agent, FixedCosts(1.0).predict, times)
    for i in range(4):
        query = CostQuery(
            prompt_tokens=1, output_tokens=1.0, model="m", hardware="h", running=0, waiting=0, kv_usage=0.0,
            task=TaskType.QA,
        )  # fmt: skip
        item = PredictItem(f"r{i}", "w0", query)
        mesh.heap.at(0.0, server.call, (item,), lambda costs: answers.append((mesh.heap.now_s, costs[0].ttft_s)))
    mesh.heap.run(1.0)
    # One, then two together, and the last one is late: the fallback answers for it.
    assert [(round(at_s, 3), cost) for at_s, cost in answers] == [(0.11, 1.0), (0.23, 1.0), (0.23, 1.0), (0.25, 9.0)]


class FixedCosts:
    version = "fixed"

    def __init__(self, seconds: float) -> None:
        self._cost = Cost(seconds, 0.01)

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        return [self._cost] * len(queries)


@pytest.mark.parametrize(("estimator", "source"), [("noisy", TagSource.MODEL), ("prior", TagSource.PRIOR)])
def test_the_mesh_steps_the_agents_of_cognition(estimator: str, source: TagSource) -> None:
    setup = MeshSetup(estimator=estimator, costs="shipped")
    log = EffectLog(keep=True)
    mesh = MeshSim(setup, SMALL, 2, LOADED, 1, log=log)
    mesh.run()
    answers = {name: [x for x in log.lines if f" {name} AnswerCall(" in x] for name in ("perception", "prediction")}
    assert sum(line.count("Tags(") for line in answers["perception"]) > 0.9 * len(LOADED.requests)
    assert sum(line.count("Cost(") for line in answers["prediction"]) > 0.9 * len(LOADED.requests)
    assert all(line.count("Tags(") == line.count(f"source={source!r}") for line in answers["perception"])
    assert mesh.fallbacks.total() < 0.1 * len(LOADED.requests)


def test_without_cognition_every_request_falls_back() -> None:
    mesh = MeshSim(MeshSetup(estimator="none"), SMALL, 2, LOADED, 1)
    mesh.run()
    assert mesh.fallbacks == {FallbackReason.OFF: len(LOADED.requests)}


def test_a_model_that_is_too_slow_is_not_waited_for() -> None:
    setup = MeshSetup(perception=ModelTimes(((1, 0.1), (32, 0.1)), budget_s=1.0), perception_cpu_share=16.0)
    mesh = MeshSim(setup, SMALL, 2, LOADED, 1)
    mesh.run()
    assert mesh.fallbacks[FallbackReason.LATE] > 0.8 * len(LOADED.requests)


def test_a_batch_takes_the_time_that_was_measured() -> None:
    times = ModelTimes(((1, 0.003), (2, 0.005), (4, 0.011)))
    assert [times.batch_s(rows) for rows in (1, 2, 3, 4, 8)] == pytest.approx([0.003, 0.005, 0.008, 0.011, 0.022])
    for model in ("perception", "prediction"):
        seconds = [s for _, s in measured_times(model).by_rows]
        assert 0.0 < seconds[0] < seconds[-1] < 1.0


def test_prediction_is_told_what_the_profile_emulates() -> None:
    asked: set[tuple[str, str]] = set()

    class SeenCosts(FixedCosts):
        def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
            asked.update((q.model, q.hardware) for q in queries)
            return super().predict(queries)

    mesh = MeshSim(MeshSetup(), replace(SMALL, model="llama2-70b", hardware="A100x4"), 1, LOADED, 1)
    mesh.cognition.prediction._model = SeenCosts(0.01).predict
    mesh.run()
    assert asked == {("llama2-70b", "A100x4")}


def test_an_oracle_of_costs_tells_cards_apart() -> None:
    slow = replace(SMALL, model="m", hardware="slow")
    fast = replace(slow, hardware="fast", cost=replace(SMALL.cost, c0_s=0.001))
    query = CostQuery(
        prompt_tokens=1, output_tokens=1.0, model="m", hardware="slow", running=0, waiting=0, kv_usage=0.0,
        task=TaskType.QA,
    )  # fmt: skip
    costs = cost_model("engine", {"a": (slow,), "b": (fast,), "c": (SMALL,)})
    queries = [query, replace(query, hardware="fast"), replace(query, model="c", hardware="")]
    found = [cost.tpot_s for cost in costs.predict(queries)]
    assert found[0] == found[2] > found[1]
    nameless = cost_model("engine", {"m": (replace(slow, model=""), replace(fast, model=""))})
    assert [cost.tpot_s for cost in nameless.predict(queries[:2])] == found[:2]


def test_perception_takes_no_more_than_its_share_of_a_core() -> None:
    def beyond(share: float) -> int:
        mesh = MeshSim(MeshSetup(estimator="noisy", perception_cpu_share=share), SMALL, 2, LOADED, 1)
        mesh.run()
        agent: Any = mesh.cognition.perception._agent
        return int(agent.fallbacks["cpu_share"])

    assert beyond(1.0) == 0
    assert len(LOADED.requests) // 2 < beyond(0.01) < len(LOADED.requests)


def test_what_was_annotated_before_its_dispatch_is_counted() -> None:
    queued = random_workload(5, 40.0, 6.0)

    def masked(setup: MeshSetup) -> tuple[int, int]:
        run = MeshSim(setup, SMALL, 2, queued, 1).run().run
        assert run.granted == len(queued.requests) >= run.waited
        assert run.waited_masked == run.masked  # none is annotated in the instant at which it comes
        assert 0 < run.late_granted < run.granted // 2
        assert run.masked * run.late_granted <= run.late_masked * run.granted  # the queue has formed by then
        return run.masked, run.granted

    some, granted = masked(MESHES["hmas-noisy"])
    assert 0 < some < granted
    assert masked(MeshSetup(estimator="none"))[0] == 0
    slow = ModelTimes(((1, 0.035),))
    assert masked(replace(MESHES["hmas-noisy"], prediction=slow))[0] < some  # for a slow perception its prior answers


def test_the_noisy_oracle_is_as_wrong_as_it_says() -> None:
    from math import log
    from statistics import stdev

    oracle = estimator("noisy", 0.35, 0.942, 3)
    rows = [offered(i, 0.0, 100, 300) for i in range(2000)]
    tags = [oracle.estimate(r) for r in rows]
    errors = [log(t.output_tokens / 300) for t in tags if t is not None]
    assert stdev(errors) == pytest.approx(0.35, rel=0.05)
    right = sum(t is not None and t.task is r.task for t, r in zip(tags, rows, strict=True)) / len(rows)
    assert right == pytest.approx(0.942 + 0.058 / 13, abs=0.015)
    assert [oracle.estimate(r) for r in reversed(rows)] == tags[::-1]


def test_estimators_are_named() -> None:
    with pytest.raises(ValueError, match="shipped, rules, prior, none, perfect, noisy, short-claims"):
        estimator("guess", 0.1, 0.9, 1)
    assert estimator("prior", 0.1, 0.9, 1).estimate(offered(0, 0.0, 10, 10)) is None
    assert estimator("shipped", 0.1, 0.9, 1).estimate(offered(0, 0.0, 10, 10)) is None
    claims = estimator("short-claims", 0.1, 0.9, 1)
    honest, liar = (claims.estimate(offered(0, 0.0, 10, 100, tenant=tenant)) for tenant in ("t", CLAIMANT))
    assert honest is not None
    assert liar is not None
    assert liar.output_tokens == pytest.approx(CLAIMED * honest.output_tokens)
    rules = estimator("rules", 0.1, 0.9, 1).estimate(
        replace(offered(0, 0.0, 10, 10), prompt="Translate this into German: hi")
    )
    assert rules is not None
    assert rules.task is TaskType.TRANSLATION


# --- control in virtual time


@pytest.mark.parametrize(("fence", "preempted"), [(WHOLE_BOUNDS, 0.01), (FenceConfig(), 0.03)])
@pytest.mark.long
def test_the_fence_keeps_memory_from_running_out(fence: FenceConfig, preempted: float) -> None:
    """With half the memory the same engines preempt where nobody reserves, and hardly ever behind the fence: less than
    one in a hundred with whole bounds reserved, and some more with the lower quantile that ships (ADR 37)."""
    scarce = replace(SMALL, limits=replace(SMALL.limits, num_gpu_blocks=256))
    workload = random_workload(5, 25.0, 30.0, output=5.0)
    unfenced = run_fleet(VLLM, workload, scarce, 2, 1)
    setup = replace(NOISY, pin=TopologyName.FCFS, statera_config=StateraConfig(fence=fence))
    result = MeshSim(setup, scarce, 2, workload, 1).run()
    assert unfenced.run.preemptions > 100
    assert result.run.preemptions < preempted * len(workload.requests)  # a bound is outgrown, seldom the room
    assert all(s.outcome is Outcome.FINISHED for s in result.settlements)
    assert result.run.coverage is not None
    total = result.run.coverage.total
    assert total.admitted == len(workload.requests)
    assert total.outgrown / total.admitted == pytest.approx(0.1, abs=0.03)  # epsilon of Eq. 4


def test_a_scripted_answer_takes_the_way_of_a_language_model() -> None:
    mesh, log = simulate(MESHES["meta-scripted-llm"], random_workload(5, 20.0, 60.0))
    assert any("AskSelector(" in line for line in log.lines)
    assert any("selector='llm'" in line for line in log.lines)
    assert not any("kind='rejected'" in line for line in log.lines)
    for view in mesh.control.views:
        ask = AskSelector(ask=1, view=view, current=TopologyName.SJF, hints=Hints(), timeout_s=10.0)
        assert isinstance(parse_answer(scripted_llm.answer(ask)), Choice)


def test_every_effect_has_a_handler() -> None:
    """Otherwise an effect that is new would be lost in the simulator, where nothing else would tell."""
    mesh = MeshSim(MeshSetup(), SMALL, 2, LOADED, 1)
    (worker,) = mesh.workers.values()
    for effects, handlers in (
        (WorkerEffect, worker._handlers),
        (GatewayEffect, mesh.gateways["g0"]._handlers),
        (QosEffect, mesh.control.handlers["qos"]),
        (MetaEffect, mesh.control.handlers["meta"]),
        (StateraEffect, mesh.control.handlers["statera"]),
    ):
        assert set(handlers) == set(get_args(effects))

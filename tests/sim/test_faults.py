"""Faults in virtual time: only a dead gateway loses requests, nothing runs twice, and engines are not overrun."""

import os
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hmas.contracts.cadences import LIVE
from hmas.contracts.execution import Adopt, Withdraw
from hmas.contracts.gateway import StartRun, ToWorker
from hmas.contracts.outcome import Outcome
from hmas.engine.core import EngineCore
from hmas.engine.core.sequence import EngineRequest
from hmas.gateway.agent.config import FailOpenConfig
from hmas.sim.effect_log import EffectLog
from hmas.sim.excess import Excess
from hmas.sim.faults import LASTING, Fault, FaultKind
from hmas.sim.processes.engine import SimEngine
from hmas.sim.processes.heap import EventHeap
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.processes.ports import SimRun
from hmas.sim.result import SimResult
from hmas.sim.setup import MeshSetup, PoolSetup
from hmas.sim.workload import Workload
from hmas_lab.sim.experiment import fault_of, load_experiment
from tests.sim.sim_cases import SMALL, offered, random_workload

N_RUN = SMALL.limits.max_num_seqs
HOURS = int(os.environ.get("HMAS_SIM_SOAK_HOURS", "0"))
# Seed, requests/s, virtual seconds: somewhat more than the engines can serve, and hours of a sixth of it.
RANDOM_FAULTS: list[Any] = [
    (1, 50.0, 60.0), pytest.param(1, 50.0, 300.0, marks=pytest.mark.long),
    *((seed, 8.0, 3600.0) for seed in range(2, 2 + HOURS)),
]  # fmt: skip


def fault(
    at_s: float, kind: str, target: str, until_s: float | None = None, delay_s: float = 0.0, factor: float = 1.0
) -> Fault:
    return Fault(at_s=at_s, kind=FaultKind(kind), target=target, until_s=until_s, delay_s=delay_s, factor=factor)


class Seen(EffectLog):
    """Keeps what the gateways did."""

    def __init__(self) -> None:
        super().__init__()
        self.effects: list[tuple[float, str, Any]] = []

    def add(self, now_s: float, agent: str, effect: object) -> None:
        if isinstance(effect, StartRun | ToWorker):
            self.effects.append((now_s, agent, effect))

    def runs(self) -> list[tuple[float, StartRun]]:
        return [(at_s, e) for at_s, _, e in self.effects if isinstance(e, StartRun)]

    def bypassed(self) -> list[tuple[float, StartRun]]:
        return [(at_s, e) for at_s, e in self.runs() if e.grant is None]

    def sent(self, kind: type) -> list[tuple[float, str, str]]:
        return [
            (at_s, agent, e.worker)
            for at_s, agent, e in self.effects
            if isinstance(e, ToWorker) and isinstance(e.message, kind)
        ]


def simulate(
    workload: Workload, *faults: Fault, engines: int = 2, setup: MeshSetup | None = None
) -> tuple[SimResult, Seen]:
    seen = Seen()
    setup = replace(setup or MeshSetup(), faults=faults)
    return MeshSim(setup, SMALL, engines, workload, 1, log=seen).run(), seen


def outcomes(result: SimResult) -> Counter[Outcome]:
    return Counter(s.outcome for s in result.settlements)


def all_finished_once(result: SimResult, seen: Seen) -> None:
    assert set(outcomes(result)) == {Outcome.FINISHED}
    assert len(seen.runs()) == len(result.settlements)
    assert result.run.doubled == 0


# --- the worker's death


LOADED = random_workload(5, 14.0, 60.0)
PAIR = MeshSetup(workers=2, gateways=2)


@pytest.mark.parametrize("gateways", [1, 2])
def test_with_all_workers_dead_the_gateways_place_requests_until_they_are_back(gateways: int) -> None:
    setup = replace(PAIR, gateways=gateways)
    result, seen = simulate(LOADED, fault(10.0, "restart", "w*", 25.0), setup=setup)
    all_finished_once(result, seen)
    placed = seen.bypassed()
    assert len(placed) > 50
    opens_s = 10.0 + setup.gateway_config.fail_open.after_s
    assert opens_s <= min(at_s for at_s, _ in placed) < opens_s + 0.2
    assert max(at_s for at_s, _ in placed) < 26.0
    adopted = [(g, w) for at_s, g, w in seen.sent(Adopt) if at_s > 25.0]
    assert set(adopted) == {(f"g{i}", w) for i in range(gateways) for w in ("w0", "w1")}
    for engine in result.run.engines:
        assert engine.unaccounted == 0
        assert engine.over_n_run <= (gateways - 1) * N_RUN // 2  # one gateway knows all that it runs


def test_with_one_worker_dead_its_requests_go_to_the_other_one_and_its_engine_does_not_idle() -> None:
    result, seen = simulate(random_workload(5, 20.0, 40.0), fault(10.0, "kill", "w0"), setup=PAIR)
    all_finished_once(result, seen)
    assert {e.engine for _, e in seen.bypassed()} == {"e0"}
    assert {e.engine for at_s, e in seen.runs() if at_s > 10.1 and e.grant is not None} == {"e1"}
    assert len(seen.bypassed()) > 50
    assert seen.sent(Withdraw)  # requests that waited at w1 were pulled


def test_without_fail_open_requests_wait_or_are_given_up() -> None:
    config = replace(MeshSetup().gateway_config, fail_open=FailOpenConfig(enabled=False))
    dead = fault(10.0, "restart", "w0", 25.0)
    result, seen = simulate(LOADED, dead, setup=MeshSetup(gateway_config=config))
    assert not seen.bypassed()
    assert outcomes(result)[Outcome.NO_ENGINE] > 50


def test_a_short_freeze_of_a_worker_changes_no_way() -> None:
    result, seen = simulate(LOADED, fault(10.0, "freeze", "w0", 11.5))
    all_finished_once(result, seen)
    assert not seen.bypassed()
    assert not [1 for at_s, _, _ in seen.sent(Adopt) if at_s > 0.0]


def test_a_frozen_worker_is_passed_by_and_adopts_when_it_wakes() -> None:
    result, seen = simulate(LOADED, fault(10.0, "freeze", "w0", 20.0))
    assert set(outcomes(result)) == {Outcome.FINISHED}
    assert all(12.0 <= at_s < 21.0 for at_s, _ in seen.bypassed())
    assert seen.sent(Adopt)
    assert [e.unaccounted for e in result.run.engines] == [0, 0]


def test_a_new_worker_counts_what_a_parted_gateway_runs_by_itself() -> None:
    """Nothing in the books of the new worker stands for it: the engine's own count alone shows it."""
    faults = fault(10.0, "part", "g1-w0", 45.0), fault(12.0, "restart", "w0", 18.0)
    result, seen = simulate(random_workload(5, 20.0, 60.0), *faults, engines=1, setup=MeshSetup(gateways=2))
    assert result.run.doubled == 0
    mixed = {(agent, e.grant is None) for at_s, agent, e in seen.effects if isinstance(e, StartRun) and 20 < at_s < 45}
    assert mixed == {("g0", False), ("g1", True)}
    (engine,) = result.run.engines
    assert engine.unaccounted == 0


# --- gateways and engines


def test_what_a_dead_gateway_had_is_lost_for_its_clients_and_leaves_the_engines() -> None:
    workload = random_workload(5, 14.0, 40.0)
    mesh = MeshSim(replace(PAIR, faults=(fault(10.0, "restart", "g0", 20.0),)), SMALL, 2, workload, 1)
    result = mesh.run()
    lost = [j for j in mesh.journeys.values() if j.lost]
    assert 0 < len(lost) == result.run.lost == outcomes(result)[Outcome.INTERNAL]
    assert all(j.gateway == "g0" and j.offered.request.arrival_s < 10.0 for j in lost)
    assert outcomes(result)[Outcome.FINISHED] == len(workload.requests) - len(lost)
    assert any(j.gateway == "g0" and j.offered.request.arrival_s > 20.0 for j in mesh.journeys.values())
    assert not any(j.gateway == "g0" for j in mesh.journeys.values() if 10.0 < j.offered.request.arrival_s < 20.0)
    for endpoint in mesh.endpoints.values():
        assert endpoint.engine.core.kv.free == SMALL.limits.num_gpu_blocks
    assert [e.unaccounted for e in result.run.engines] == [0, 0]


def test_without_a_gateway_every_request_is_lost() -> None:
    result, _ = simulate(random_workload(5, 10.0, 10.0), fault(0.0, "kill", "g*"), setup=PAIR)
    assert set(outcomes(result)) == {Outcome.INTERNAL}
    assert result.run.lost == len(result.settlements)


def test_a_frozen_engine_is_given_up_and_found_again() -> None:
    result, seen = simulate(LOADED, fault(10.0, "freeze", "e0", 20.0))
    assert set(outcomes(result)) == {Outcome.FINISHED}
    starts = [at_s for at_s, e in seen.runs() if e.engine == "e0"]
    assert not [at_s for at_s in starts if 14.0 < at_s < 20.0]
    assert [at_s for at_s in starts if at_s > 20.0]


@pytest.mark.long
@pytest.mark.parametrize("setup", [MeshSetup(), PAIR])
def test_an_engine_that_hangs_loses_what_it_had_and_is_used_again_once_it_gives_tokens(setup: MeshSetup) -> None:
    stalls, workload = setup.gateway_config.stalls, random_workload(5, 14.0, 240.0)
    result, seen = simulate(workload, fault(20.0, "hang", "e0", 150.0), setup=setup)
    assert set(outcomes(result)) == {Outcome.FINISHED, Outcome.ENGINE_ERROR}
    cut = [s for s in result.settlements if s.outcome is Outcome.ENGINE_ERROR]
    assert 0 < len(cut) <= N_RUN
    assert all(s.ttft_s is not None for s in cut)  # those that had no token moved
    starts = [at_s for at_s, e in seen.runs() if e.engine == "e0"]
    trials = [at_s for at_s in starts if 20.0 + stalls.least_s + 3.0 < at_s < 150.0]
    assert len(trials) <= 130.0 / stalls.least_s  # one at a time, each until it stalls too
    assert len([at_s for at_s in starts if at_s > 155.0]) > 50
    assert result.run.doubled == 0


@pytest.mark.parametrize("setup", [MeshSetup(), PAIR])
def test_an_engine_that_sleeps_loses_nothing_and_gets_nothing(setup: MeshSetup) -> None:
    workload = random_workload(5, 14.0, 240.0)
    result, seen = simulate(workload, fault(20.0, "sleep", "e0", 150.0), setup=setup)
    assert set(outcomes(result)) == {Outcome.FINISHED}
    starts = [at_s for at_s, e in seen.runs() if e.engine == "e0"]
    assert [at_s for at_s in starts if 20.0 + LIVE.scrape_s + 0.1 < at_s < 150.0] == []
    assert len([at_s for at_s in starts if at_s > 150.0 + LIVE.scrape_s + 0.1]) > 50
    assert result.run.doubled == 0
    began = [s for s in result.settlements if s.ttft_s is not None and s.offered_s + s.ttft_s < 20.0]
    interrupted = [s for s in began if s.last_token_s is not None and s.offered_s + s.last_token_s > 150.0]
    assert 0 < len(interrupted) <= N_RUN, "those that had a token went on when it woke"


def test_where_all_engines_sleep_requests_wait_and_are_served() -> None:
    result, seen = simulate(random_workload(5, 4.0, 120.0), fault(20.0, "sleep", "e*", 60.0))
    assert set(outcomes(result)) == {Outcome.FINISHED}
    assert [at_s for at_s, _ in seen.runs() if 20.6 < at_s < 60.0] == []


def test_a_parted_engine_serves_the_other_gateway() -> None:
    result, seen = simulate(LOADED, fault(10.0, "part", "g0-e0", 30.0), setup=MeshSetup(gateways=2))
    ways = {(agent, e.engine) for at_s, agent, e in seen.effects if isinstance(e, StartRun) and 11.5 < at_s < 30.0}
    assert ways > {("g0", "e1"), ("g1", "e0"), ("g1", "e1")}
    assert set(outcomes(result)) <= {Outcome.FINISHED, Outcome.ENGINE_ERROR}
    begun = outcomes(result)[Outcome.ENGINE_ERROR]  # answers that had begun when the connection broke
    assert begun <= N_RUN


# --- anything, for minutes


def random_faults(rng: Random, duration_s: float) -> tuple[Fault, ...]:
    gateways, workers, engines = ("g0", "g1"), ("w0", "w1"), ("e0", "e1", "e2", "e3")
    found, at_s = [], 5.0
    while (at_s := at_s + rng.expovariate(1 / 4.0)) < duration_s:
        kind = rng.choice([k for k in FaultKind if k is not FaultKind.KILL])
        match kind:
            case FaultKind.RESTART:
                target = rng.choice([*gateways, *workers, "w*"])
            case FaultKind.FREEZE:
                target = rng.choice([*gateways, *workers, *engines])
            case FaultKind.HANG | FaultKind.SLEEP | FaultKind.SLOW:
                target = rng.choice(engines)
            case FaultKind.PART:
                target = f"{rng.choice(gateways)}-{rng.choice([*workers, *engines])}"
            case _:
                target = f"{rng.choice(gateways)}-{rng.choice(workers)}"
        until_s = at_s + rng.choice([0.2, 1.0, 3.0, 8.0]) if kind in LASTING else None
        delay_s, factor = 0.3 * (kind is FaultKind.DELAY), 3.0 if kind is FaultKind.SLOW else 1.0
        found.append(fault(at_s, kind, target, until_s, delay_s, factor))
    return tuple(found)


@pytest.mark.timeout(3600 if HOURS else 300)
@pytest.mark.parametrize(("seed", "rate_rps", "duration_s"), RANDOM_FAULTS)
def test_under_random_faults_no_worker_overruns_an_engine(seed: int, rate_rps: float, duration_s: float) -> None:
    """`HMAS_SIM_SOAK_HOURS=24` adds a virtual day, an hour a seed."""
    workload = random_workload(seed, rate_rps, duration_s)
    faults = random_faults(Random(seed), duration_s)
    result, seen = simulate(workload, *faults, engines=4, setup=PAIR)
    worst = max(result.run.engines, key=lambda e: e.over_n_run)
    print(f"seed {seed}: {len(faults)} faults in {duration_s:.0f} s, {len(workload.requests)} requests, "
          f"{len(seen.bypassed())} by bypass, {result.run.lost} lost with a gateway; at most {worst.over_n_run} beyond "
          f"N_run, for at most {max(e.over_n_run_s for e in result.run.engines):.1f} s; beyond what scrapes had not "
          f"shown: {max(e.unaccounted for e in result.run.engines)}")  # fmt: skip
    assert len(result.settlements) == len(workload.requests)
    assert result.run.doubled == 0
    assert set(outcomes(result)) <= {Outcome.FINISHED, Outcome.INTERNAL, Outcome.ENGINE_ERROR}
    assert outcomes(result)[Outcome.INTERNAL] == result.run.lost < 0.2 * len(workload.requests)
    cut = [s for s in result.settlements if s.outcome is Outcome.ENGINE_ERROR]  # engine and gateway were parted
    assert all(s.ttft_s is not None for s in cut)
    assert {e.engine: e.unaccounted for e in result.run.engines} == dict.fromkeys(("e0", "e1", "e2", "e3"), 0)


# --- the parts


def test_a_run_with_faults_is_the_same_every_time() -> None:
    workload = random_workload(2, 20.0, 40.0)
    setup = replace(PAIR, faults=random_faults(Random(2), 40.0))
    digests = set()
    for _ in range(2):
        log = EffectLog()
        MeshSim(setup, SMALL, 4, workload, 1, log=log).run()
        digests.add(log.digest())
    assert len(digests) == 1


def test_pools_have_their_own_workers_and_engines() -> None:
    rows = random_workload(5, 14.0, 20.0).requests
    requests = tuple(replace(r, request=replace(r.request, model="ab"[i % 2])) for i, r in enumerate(rows))
    pools = (PoolSetup("a", SMALL, 1), PoolSetup("b", SMALL, 2, workers=2))
    log = Seen()
    result = MeshSim(MeshSetup(pools=pools), SMALL, 0, Workload("two", requests, 20.0), 1, log=log).run()
    assert set(outcomes(result)) == {Outcome.FINISHED}
    models = {r.id: r.request.model for r in requests}
    places = {(models[e.request_id], e.worker, e.engine) for _, e in log.runs()}
    assert places == {("a", "w0", "e0"), ("b", "w1", "e1"), ("b", "w2", "e2")}


def test_requests_go_to_gateways_by_weight() -> None:
    mesh = MeshSim(replace(PAIR, gateway_weights=(3, 1)), SMALL, 2, random_workload(5, 14.0, 20.0), 1)
    mesh.run()
    counts = Counter(j.gateway for j in mesh.journeys.values())
    assert counts["g0"] == pytest.approx(3 * counts["g1"], abs=3)


def test_a_frozen_engine_stands_still() -> None:
    times = []
    for frozen in (False, True):
        heap = EventHeap()
        done: list[float] = []
        engine = SimEngine(
            heap, EngineCore(SMALL), "e0", lambda _, r, h=heap, d=done: d.extend([h.now_s] * len(r.finished))
        )
        heap.at(0.0, engine.add, EngineRequest("a", 100, 50))
        if frozen:
            heap.at(0.2, engine.freeze)
            heap.at(5.2, engine.thaw)
        heap.run(60.0)
        times += done
    step_s = SMALL.cost.step_s(0, 1, 200, 0.0)
    assert 5.0 - step_s <= times[1] - times[0] <= 5.0


@pytest.mark.parametrize("skip", [True, False])
def test_a_slow_engine_takes_as_many_times_as_long(skip: bool) -> None:
    """Whether quiet steps are skipped or taken."""
    ends: list[float] = []
    for factor in (1.0, 3.0):
        heap = EventHeap()
        engine = SimEngine(heap, EngineCore(SMALL), "e0", lambda *_: None, skip)
        engine.slow(factor)
        heap.at(0.0, engine.add, EngineRequest("r", 100, 50))
        heap.run(1e6)
        ends.append(engine.busy_s)
    assert ends[1] == pytest.approx(3.0 * ends[0])


def test_a_slowed_engine_is_as_fast_as_before_afterwards() -> None:
    def busy_s(*faults: tuple[float, float]) -> tuple[int, float]:
        heap = EventHeap()
        engine = SimEngine(heap, EngineCore(SMALL), "e0", lambda *_: None)
        heap.at(0.0, engine.add, EngineRequest("r", 100, 200))
        for at_s, factor in faults:
            heap.at(at_s, engine.slow, factor)
        heap.run(1e6)
        return engine.steps, engine.busy_s

    steps, plain_s = busy_s()
    again, slowed_s = busy_s((0.2, 3.0), (0.5, 1.0))
    assert again == steps
    assert plain_s < slowed_s < plain_s + 0.35


def test_the_largest_and_the_longest_excess() -> None:
    excess = Excess()
    for at_s, over in ((0.0, 0), (1.0, 2), (1.5, 5), (2.0, 0), (4.0, 1), (5.5, -3), (9.0, 0)):
        excess.update(at_s, over)
    assert (excess.largest, excess.longest_s) == (5, 1.5)


def send(mesh: MeshSim, number: int, fenced: bool = True) -> None:
    row, endpoint = offered(number, 0.0, 10, 500), mesh.endpoints["e0"]
    run = SimRun(request_id=row.id, run=number, gateway=mesh.gateways["g0"], endpoint=endpoint, fenced=fenced)
    endpoint.send(run, row.engine_request())


def test_an_overfull_engine_shows() -> None:
    """The counter itself: what is placed beyond N_run is an excess, what was there when N_run fell is none."""
    mesh = MeshSim(MeshSetup(), SMALL, 1, Workload("none", (), 1.0), 1)
    endpoint, place = mesh.endpoints["e0"], partial(send, mesh)
    for number in range(6):
        mesh.heap.at(0.0, place, number)
    mesh.heap.at(0.1, endpoint.limit, 4)
    mesh.heap.run(0.2)
    assert endpoint.summary().over_n_run == 0
    mesh.heap.at(0.3, place, 6, False)
    mesh.heap.at(0.4, place, 7)
    mesh.heap.run(1.0)
    assert (endpoint.summary().over_n_run, endpoint.summary().unaccounted) == (2, 1)  # the worker knows its own grants
    for at_s in (1.1, 1.15):
        mesh.heap.at(at_s, endpoint.sample)
    mesh.heap.at(1.2, place, 8)
    mesh.heap.at(2.0, endpoint.sample)
    mesh.heap.run(2.0)
    assert (endpoint.summary().over_n_run, endpoint.summary().unaccounted) == (3, 3)  # after two samples, all else too
    assert endpoint.summary().over_n_run_s == pytest.approx(2.0 - 0.301)


def test_a_grant_counts_against_the_limit_under_which_it_was_given() -> None:
    mesh = MeshSim(MeshSetup(), SMALL, 1, Workload("none", (), 1.0), 1)
    endpoint = mesh.endpoints["e0"]
    endpoint.limit(2)
    for number in range(2):
        endpoint.granted(f"r{number}")
        mesh.heap.at(0.0, send, mesh, number)
    mesh.heap.at(0.0005, endpoint.limit, 1)
    mesh.heap.run(0.1)
    assert endpoint.summary().over_n_run == 0
    mesh.heap.at(0.2, endpoint.granted, "r2")
    mesh.heap.at(0.2, send, mesh, 2)
    mesh.heap.run(0.3)
    assert (endpoint.summary().over_n_run, endpoint.summary().unaccounted) == (1, 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"at_s": 1, "kind": "freeze", "target": "w0"}, "needs an until_s"),
        ({"at_s": 1, "kind": "kill", "target": "w0", "until_s": 2}, "must not have an until_s"),
        ({"at_s": 3, "kind": "part", "target": "g0-w0", "until_s": 2}, "0 <= at_s <= until_s"),
        ({"at_s": 1, "kind": "delay", "target": "g0-w0", "until_s": 2}, "delay_s belongs to"),
        ({"at_s": 1, "kind": "slow", "target": "e0", "until_s": 2}, "factor belongs to"),
        ({"at_s": 1, "kind": "melt", "target": "w0"}, "melt"),
        ({"at_s": 1, "kind": "kill", "target": "w0", "when": 2}, "unknown keys when"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fault_of(body)


def test_a_fault_without_a_target_is_refused() -> None:
    with pytest.raises(ValueError, match="finds no target 'w7': choose from g0, w0"):
        simulate(LOADED, fault(1.0, "kill", "w7"))


def test_the_committed_experiment_has_every_kind_that_comes_back() -> None:
    experiment = load_experiment(Path(__file__).parents[2] / "experiments" / "faults.yaml")
    assert {f.kind for f in experiment.faults} == set(FaultKind) - {FaultKind.KILL}

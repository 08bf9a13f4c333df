"""Engines join and leave a simulated mesh as they do live: they are granted requests from then on or until then."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from hmas.contracts.agent import Agent
from hmas.contracts.control import TopologyName
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.worker import EngineSampled
from hmas.sim.engine_changes import ChangeKind, EngineChange
from hmas.sim.faults import Fault, FaultKind
from hmas.sim.processes.mesh import Handlers, MeshSim
from hmas.sim.setup import POOL, MeshSetup, PoolSetup
from hmas_lab.sim.systems import MESHES
from tests.sim.sim_cases import SMALL, random_workload

JOIN, DRAIN = partial(EngineChange, kind=ChangeKind.JOIN), partial(EngineChange, kind=ChangeKind.DRAIN)
PAUSE_S, HEARD_S = 0.5, 1.5  # after a lease was taken; a heartbeat and samples


def setup(*changes: EngineChange, workers: int = 1, faults: tuple[Fault, ...] = ()) -> MeshSetup:
    pools = (PoolSetup(POOL, SMALL, 3, workers),)
    return replace(MESHES["hmas-noisy"], pin=TopologyName.MAX_ON_TIME, pools=pools, changes=changes, faults=faults)


class GrantsSim(MeshSim):
    """Notes when each engine was granted a request and sampled last, and which engines each worker told of last."""

    def __init__(self, setup: MeshSetup) -> None:
        super().__init__(setup, SMALL, 0, random_workload(5, 20.0, 40.0), 5)
        self.given: dict[str, list[float]] = {name: [] for name in self.endpoints}
        self.told: dict[str, list[str]] = {}
        self.sampled: dict[str, float] = {}

    def step(self, label: str, agent: Agent[Any, Any], event: object, handlers: Handlers) -> None:
        if isinstance(event, EngineSampled):
            self.sampled[event.engine] = self.heap.now_s
        super().step(label, agent, event, handlers)

    def publish_worker(self, telemetry: WorkerTelemetry) -> None:
        for each in telemetry.dispatched:
            self.given[each.engine].append(self.heap.now_s - each.age_s)
        super().publish_worker(telemetry)

    def publish(self, message: object) -> None:
        if isinstance(message, WorkerHeartbeat):
            self.told[message.worker] = [engine.engine for engine in message.engines]
        super().publish(message)


def ran(setup: MeshSetup) -> GrantsSim:
    sim = GrantsSim(setup)
    ends = sim.run().settlements
    assert {end.outcome for end in ends} == {Outcome.FINISHED}
    assert sim.doubled == 0
    return sim


def test_an_engine_that_joins_serves_from_then_on() -> None:
    sim = ran(setup(JOIN(15.0, engine="e1")))
    assert 15.0 + PAUSE_S <= sim.given["e1"][0] <= 15.0 + PAUSE_S + HEARD_S
    assert min(sim.given["e0"][0], sim.given["e2"][0]) < 1.0
    assert len(sim.given["e1"]) > 50


def test_an_engine_that_drains_ends_what_runs_there_and_is_released() -> None:
    sim = ran(setup(DRAIN(15.0, engine="e1")))
    assert 14.0 < sim.given["e1"][-1] <= 15.0
    assert sim.endpoints["e1"].engine.core.stats().num_requests_running == 0
    assert sim.told == {"w0": ["e0", "e2"]}
    assert 15.0 < sim.sampled["e1"] < sim.sampled["e0"] - 5.0


def test_the_worker_with_the_fewest_engines_takes_the_one_that_joins() -> None:
    sim = ran(setup(DRAIN(8.0, engine="e2"), JOIN(10.0, engine="e0"), workers=2))
    assert {name: list(worker.endpoints) for name, worker in sim.workers.items()} == {"w0": ["e1"], "w1": ["e0"]}
    killed = Fault(at_s=5.0, kind=FaultKind.KILL, target="w0")
    sim = ran(setup(JOIN(10.0, engine="e0"), workers=2, faults=(killed,)))
    assert list(sim.workers["w1"].endpoints) == ["e2", "e0"]


def test_a_worker_that_starts_again_has_the_engines_of_then() -> None:
    restart = Fault(at_s=20.0, kind=FaultKind.RESTART, target="w0", until_s=22.0)
    changes = JOIN(10.0, engine="e0"), DRAIN(21.0, engine="e2")
    sim = ran(setup(*changes, faults=(restart,)))
    assert sorted(sim.workers["w0"].endpoints) == ["e0", "e1"]
    assert sim.given["e2"][-1] < 22.0
    assert sim.given["e0"][-1] > 25.0


def test_an_engine_may_join_and_drain_again() -> None:
    sim = ran(setup(JOIN(10.0, engine="e0"), DRAIN(20.0, engine="e0")))
    assert 10.0 < sim.given["e0"][0] < sim.given["e0"][-1] <= 20.0


def test_a_change_needs_an_engine_and_an_instant_of_the_run() -> None:
    with pytest.raises(ValueError, match="finds no engine 'e9': choose from e0, e1, e2"):
        ran(setup(DRAIN(1.0, engine="e9")))
    with pytest.raises(ValueError, match="at_s of 0 or more"):
        JOIN(-1.0, engine="e0")

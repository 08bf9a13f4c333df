"""A mesh in virtual time that only observes: its gateways place all requests, its past says so, and it is replayed as
it was beside scheduling."""

from dataclasses import replace
from functools import cache

import pytest

from hmas.contracts.control import TopologyName
from hmas.contracts.rehearsal import Policy
from hmas.contracts.request import TagSource
from hmas.gateway.agent.config import GatewayConfig
from hmas.laws.request_rows import OBSERVED, RequestRow, unpack
from hmas.laws.scoring import is_ok
from hmas.meta.agent.config import ForetellingConfig, MetaConfig
from hmas.sim.past.rehearsal import rehearse
from hmas.sim.past.replay import Scene
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import POOL
from hmas_lab.sim.systems import MESHES
from tests.sim.sim_cases import SMALL, random_workload

OBSERVING = GatewayConfig(gateway="g0", observe=True)
UNTOLD = MetaConfig(foretelling=ForetellingConfig(enabled=False))
WATCHED, SCHEDULED = (Policy(topology=TopologyName.MAX_ON_TIME, observes=observes) for observes in (True, False))


@cache
def ran() -> MeshSim:
    setup = replace(MESHES["hmas-noisy"], gateway_config=OBSERVING, meta_config=UNTOLD)
    sim = MeshSim(setup, SMALL, 2, random_workload(3, 34.0, 30.0), 3)
    sim.run()
    return sim


@cache
def past() -> tuple[RequestRow, ...]:
    blocks = ran().control.qos.past(ran().heap.now_s, POOL, 1e9)
    rows = [replace(row, arrival_s=row.arrival_s - b.age_s) for b in blocks for row in unpack(b.rows)]
    return tuple(sorted((row for row in rows if row.outcome is not None), key=lambda row: row.arrival_s))


def scene(in_force: Policy) -> Scene:
    return Scene(rows=past(), window_s=90.0, profiles=(SMALL, SMALL), workers=1, in_force=in_force)


def test_nothing_waits_where_gateways_only_observe() -> None:
    assert ran()._summary().granted == 0
    assert all(each.first_token_s is not None for each in ran().journeys.values() if each.outcome is not None)


def test_the_past_says_that_it_was_observed_and_what_perception_said() -> None:
    assert {row.topology for row in past() if row.arrival_s > past()[0].arrival_s + 2.0} == {OBSERVED}
    assert TagSource.MODEL in {row.tagged_by for row in past()}


def test_what_was_observed_is_not_judged_as_scheduled() -> None:
    assert rehearse(scene(SCHEDULED), []).observed.requests < 100


@pytest.mark.long
def test_observing_is_replayed_as_it_was_and_scheduling_beside_it() -> None:
    found = rehearse(scene(WATCHED), [WATCHED, SCHEDULED])
    assert not found.abstains
    assert abs(found.miss) <= 0.03
    same, scheduled = found.candidates
    assert (same.gain, same.low, same.high) == (0.0, 0.0, 0.0)
    made = MeshSim(replace(MESHES["hmas-noisy"], meta_config=UNTOLD), SMALL, 2, random_workload(3, 34.0, 30.0), 3)
    on_time = [is_ok(each) for each in made.run().settlements]
    assert abs(found.observed.on_time + scheduled.gain - sum(on_time) / len(on_time)) <= 0.05

"""Overload in virtual time: nobody starves, and one tenant's flood stays its own."""

from dataclasses import replace

import pytest

from services.contracts.control import TopologyName
from services.contracts.metrics import Settlement, is_ok
from services.contracts.outcome import Outcome
from services.sim.mesh import MeshSim
from services.sim.result import RunResult
from services.sim.setup import MeshSetup
from services.sim.workload import OfferedRequest, Workload
from tests.services.sim.sim_cases import SMALL, random_workload

FLOOD_S = 20.0


def run(topology: TopologyName, workload: Workload) -> RunResult:
    return MeshSim(MeshSetup(pin=topology), SMALL, 1, workload, 1).run()


def renamed(workload: Workload, tenant: str, prefix: str) -> list[OfferedRequest]:
    """The requests as those of one tenant; with a prefix, so that ids stay apart."""
    return [
        replace(r, request=replace(r.request, id=f"{prefix}{r.id}", tenant=tenant or r.request.tenant))
        for r in workload.requests
    ]


def merged(duration_s: float, *parts: list[OfferedRequest]) -> Workload:
    rows = sorted((r for part in parts for r in part), key=lambda r: r.request.arrival_s)
    return Workload("merged", tuple(rows), duration_s)


def attainment(settlements: list[Settlement], but: str) -> float:
    rows = [s for s in settlements if s.tenant != but]
    return sum(map(is_ok, rows)) / len(rows)


@pytest.mark.parametrize(
    "topology", [TopologyName.WFQ, TopologyName.CFS, TopologyName.STRIDE, TopologyName.MAX_ON_TIME]
)
def test_a_flood_of_one_tenant_leaves_the_others_where_they_were(topology: TopologyName) -> None:
    calm = random_workload(3, 2.0, FLOOD_S)
    flood = random_workload(4, 30.0, FLOOD_S)
    before = run(topology, merged(FLOOD_S, renamed(calm, "", "")))
    after = run(topology, merged(FLOOD_S, renamed(calm, "", ""), renamed(flood, "flood", "f")))
    assert attainment(after.settlements, "flood") >= attainment(before.settlements, "flood") - 0.02


def test_when_the_load_falls_what_was_relegated_is_served() -> None:
    """Four times what the engine can do for 20 s, then a tenth of it: all end within two minutes after the peak, and
    what comes after the peak is on time while the backlog drains."""
    peak = random_workload(5, 30.0, FLOOD_S)
    calm = random_workload(6, 1.0, 100.0)
    later = [replace(r, request=replace(r.request, arrival_s=r.request.arrival_s + FLOOD_S)) for r in calm.requests]
    late = [replace(r, request=replace(r.request, id=f"l{r.id}")) for r in later]
    result = run(TopologyName.MAX_ON_TIME, merged(120.0, renamed(peak, "", "p"), late))
    assert all(s.outcome is Outcome.FINISHED for s in result.settlements)
    assert sum(not is_ok(s) for s in result.settlements) > 50  # it was an overload
    assert max(s.offered_s + (s.last_token_s or 0.0) for s in result.settlements) < FLOOD_S + 120.0
    after = [s for s in result.settlements if s.request_id.startswith("l")]
    assert sum(map(is_ok, after)) / len(after) > 0.9

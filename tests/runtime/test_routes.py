"""One table of routes: what is not in it, neither the live bus nor the simulator delivers."""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import pytest

from hmas.contracts.control import TopologyDecision
from hmas.contracts.control_agents import PlanPinChanged, PlanRestored
from hmas.contracts.gateway import TenantLimits, TenantsChanged
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import ROUTES, Hearer, Role, Route
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.runtime.bus import Bus
from hmas.runtime.settings import RuntimeSettings
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.wire.codec import wire_types
from hmas.wire.subjects import SUBJECTS, pattern
from tests.sim.sim_cases import SMALL, random_workload

PAIRS = [(route, hearer) for route in ROUTES for hearer in route.hearers]
SIMULATED = {Role.GATEWAY, Role.WORKER, Role.PERCEPTION, Role.PREDICTION, Role.QOS, Role.META, Role.STATERA}


def without(route: Route, hearer: Hearer) -> tuple[Route, ...]:
    rest = tuple(each for each in route.hearers if each is not hearer)
    return tuple(replace(each, hearers=rest) if each is route else each for each in ROUTES)


def live_subjects(role: Role, routes: Iterable[Route]) -> list[str]:
    class Listening(Bus):
        def subscribe(self, subject: str, cls: type, handler: Any) -> None:
            heard.append(subject)

    heard: list[str] = []
    Listening(RuntimeSettings(), "test").follow(role, lambda _: None, own={"worker": "w", "pool": "p"}, routes=routes)
    return heard


def simulated_events(role: Role, routes: Iterable[Route]) -> set[type]:
    """What the agents of a role are stepped with in a short run, in which a tenant has limits."""
    mesh = MeshSim(MeshSetup(), SMALL, 1, random_workload(5, 14.0, 6.0), 1, routes=routes)
    heard: set[type] = set()

    def listen(step: Any) -> Any:
        def hear(event: object) -> None:
            heard.add(type(event))
            step(event)

        return hear

    for gateway in mesh.gateways.values():
        gateway.step(TenantsChanged((TenantLimits(tenant="t0", requests_per_min=1e6),)))
    mesh._bus.parties[role] = [(listen(step), own) for step, own in mesh._bus.parties[role]]
    mesh.run()
    return heard


def test_every_route_carries_a_message_of_the_wire_about_one_of_its_fields() -> None:
    for route in ROUTES:
        assert route.message in wire_types()
        assert not route.about or route.about in {field.name for field in fields(route.message)}
    assert len({route.message for route in ROUTES}) == len(ROUTES)


def test_every_event_of_the_table_is_made_of_its_message_alone() -> None:
    message = object()
    for _, hearer in PAIRS:
        if hearer.event is not None:
            event = hearer.event(message)
            assert message in [getattr(event, name) for name in event.__dataclass_fields__]


@pytest.mark.parametrize(("route", "hearer"), PAIRS, ids=lambda v: getattr(v, "role", None) or v.message.__name__)
def test_the_live_bus_misses_a_row_that_is_taken_out(route: Route, hearer: Hearer) -> None:
    all_subjects, left = (live_subjects(hearer.role, routes) for routes in (ROUTES, without(route, hearer)))
    assert len(left) == len(all_subjects) - 1
    assert set(left) < set(all_subjects)


SHORT_RUN = [(WorkerTelemetry, Role.QOS), (WorkerHeartbeat, Role.GATEWAY), (TopologyDecision, Role.WORKER)]


@pytest.mark.parametrize(("message", "role"), SHORT_RUN, ids=str)
def test_the_simulator_misses_a_row_that_is_taken_out(message: type, role: Role) -> None:
    route = next(r for r in ROUTES if r.message is message)
    hearer = next(h for h in route.hearers if h.role is role)
    assert hearer.event in simulated_events(role, ROUTES)
    assert hearer.event not in simulated_events(role, without(route, hearer))


def test_the_simulator_delivers_all_that_the_table_says_to_its_agents() -> None:
    pin_only = {h.event for r, h in PAIRS if Role.PIN in r.publishers}
    planned = {PlanRestored, PlanPinChanged}  # the simulated mesh has no catalogue
    for role in SIMULATED:
        expected = {h.event for _, h in PAIRS if h.role is role and h.event is not None} - pin_only - planned
        assert simulated_events(role, ROUTES) == expected


def test_the_page_has_every_route_and_all_its_hearers() -> None:
    rows = {row.message: row for row in SUBJECTS}
    for route, hearer in PAIRS:
        row = rows[route.message.__name__]
        assert hearer.role.value in row.receivers.split(", ")
        assert row.name.startswith(pattern(route).removesuffix("*"))

"""Interfaces through which the simulated processes reach the mesh around them and one another."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from hmas.contracts.agent import Agent
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.sim.cognition import SimCognition
from hmas.sim.heap import EventHeap
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import Journey

if TYPE_CHECKING:
    from hmas.sim.endpoint import SimEndpoint
    from hmas.sim.process import SimProcess
    from hmas.sim.stream import SimStream


class MeshPort(Protocol):
    """The mesh as its processes and engines see it. `streams` has one stream per pair (gateway, worker) of names;
    `endpoints` has the engines by name; `homes` says on which engine a request is."""

    setup: MeshSetup
    heap: EventHeap
    journeys: dict[str, Journey]
    cognition: SimCognition
    homes: dict[str, str]
    doubled: int
    on_advice: Callable[[str, float], None]

    @property
    def endpoints(self) -> Mapping[str, "SimEndpoint"]: ...

    @property
    def streams(self) -> Mapping[tuple[str, str], "SimStream"]: ...

    def streams_of(self, process: "SimProcess") -> "Iterable[SimStream]": ...

    def hearing_changed(self, process: "SimProcess") -> None: ...

    def step(
        self, label: str, agent: Agent[Any, Any], event: object, handlers: Mapping[type, Callable[[Any], None]]
    ) -> None: ...

    def settle(self, request_id: str, outcome: Outcome) -> None: ...

    def publish(self, message: object) -> None: ...

    def publish_worker(self, telemetry: WorkerTelemetry) -> None: ...

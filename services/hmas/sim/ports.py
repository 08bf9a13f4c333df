"""Interfaces through which the simulated processes reach the mesh around them and one another.

Endpoints, streams and processes are not named here by their classes, because these know the mesh by its port.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from hmas.contracts.agent import Agent
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.sim.cognition import SimCognition
from hmas.sim.heap import EventHeap
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import Journey


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
    def endpoints(self) -> Mapping[str, Any]: ...

    @property
    def streams(self) -> Mapping[tuple[str, str], Any]: ...

    def streams_of(self, process: Any) -> Iterable[Any]: ...

    def hearing_changed(self, process: Any) -> None: ...

    def step(
        self, label: str, agent: Agent[Any, Any], event: object, handlers: Mapping[type, Callable[[Any], None]]
    ) -> None: ...

    def settle(self, request_id: str, outcome: Outcome) -> None: ...

    def publish(self, message: object) -> None: ...

    def publish_worker(self, telemetry: WorkerTelemetry) -> None: ...

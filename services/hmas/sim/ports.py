"""Interfaces through which the simulated shells reach the mesh around them and one another."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hmas.contracts.agent import Agent
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.worker import (
    Annotated,
    CancelRequested,
    Conclude,
    Handback,
    RecallRequested,
    Reject,
    Submitted,
)
from hmas.sim.cognition import SimCognition
from hmas.sim.heap import EventHeap
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import Journey

GatewayMessage = Submitted | Annotated | CancelRequested | RecallRequested


class WorkerPort(Protocol):
    """A worker as the gateway sees it."""

    name: str

    def submit(self, event: GatewayMessage) -> None: ...


class GatewayPort(Protocol):
    """The gateway as a worker sees it."""

    def first_token(self, request_id: str) -> None: ...

    def concluded(self, effect: Conclude) -> None: ...

    def rejected(self, effect: Reject) -> None: ...

    def handed_back(self, effect: Handback) -> None: ...


class MeshPort(Protocol):
    """The mesh as the simulated gateway and workers see it."""

    setup: MeshSetup
    heap: EventHeap
    journeys: dict[str, Journey]
    cognition: SimCognition

    @property
    def gateway(self) -> GatewayPort: ...

    @property
    def workers(self) -> Mapping[str, WorkerPort]: ...

    def every(self, period_s: float, call: Callable[[], None]) -> None: ...

    def step(
        self, name: str, agent: Agent[Any, Any], event: object, handlers: Mapping[type, Callable[[Any], None]]
    ) -> None: ...

    def settle(self, request_id: str, outcome: Outcome) -> None: ...

    def publish(self, message: object) -> None: ...

    def publish_worker(self, telemetry: WorkerTelemetry) -> None: ...

"""Interfaces through which the simulated processes reach the mesh around them and one another."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hmas.contracts.agent import Agent
from hmas.contracts.execution import GatewayMessage, WorkerMessage
from hmas.contracts.gateway import RequestAnnotated
from hmas.contracts.outcome import Outcome
from hmas.contracts.questions import FallbackReason, PredictionQuery, Question
from hmas.contracts.request import Cost, Tags
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.engine.core.sequence import EngineRequest
from hmas.sim.processes.heap import EventHeap
from hmas.sim.processes.kv_links import KvLinks
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import Journey


@dataclass(slots=True, eq=False, kw_only=True)
class SimRun:
    """One run of a request: a connection from a gateway to an engine. `run` is that of the `StartRun`; `fenced`: a
    worker granted it. `first_s` and `last_s` are when the engine issued the token; `relayed`: the first one came to the
    client. `cached_tokens`: those of the prompt that the engine had cached, and `leg_cached_tokens`
    the same of the engine that computed the prompt, if that was another one."""

    request_id: str
    run: int
    gateway: "RunListener"
    endpoint: "EndpointPort"
    fenced: bool
    first_s: float | None = None
    last_s: float | None = None
    relayed: bool = False
    cached_tokens: int = 0
    leg_cached_tokens: int | None = None

    @property
    def prompt_cached(self) -> int:
        """The tokens of the prompt that the engine which computed it had cached."""
        return self.cached_tokens if self.leg_cached_tokens is None else self.leg_cached_tokens


class RunListener(Protocol):
    """A gateway as an engine answers it."""

    name: str

    def post(self, call: Callable[..., object], *args: Any) -> None: ...

    def first_token(self, run: SimRun) -> None: ...

    def finished(self, run: SimRun) -> None: ...

    def failed(self, run: SimRun, outcome: Outcome, message: str, busy: bool, unreached: bool) -> None: ...


class EndpointPort(Protocol):
    """An engine as gateways and other engines see it."""

    name: str
    links: KvLinks | None

    @property
    def frozen(self) -> bool: ...

    def send(self, run: SimRun, request: EngineRequest) -> None: ...

    def close(self, run: SimRun) -> None: ...

    def progress(self) -> list[tuple[str, int]]: ...

    def landed(self, request_id: str) -> None: ...

    def give_back(self, request_id: str) -> None: ...


class AskingGateway(Protocol):
    """A gateway as its questions to cognition see it."""

    def post(self, call: Callable[..., object], *args: Any) -> None: ...

    def annotated(self, answer: RequestAnnotated) -> None: ...


class CognitionPort(Protocol):
    """Perception and prediction as gateways see them."""

    def perceive(self, questions: tuple[Question, ...], answered: Callable[[tuple[Tags, ...]], None]) -> None: ...

    def predict(self, queries: tuple[PredictionQuery, ...], answered: Callable[[tuple[Cost, ...]], None]) -> None: ...


class StreamPort(Protocol):
    """A stream as its two processes see it, which name themselves where the stream must know."""

    def to_worker(self, message: GatewayMessage) -> None: ...

    def to_gateway(self, gateway: str, message: WorkerMessage) -> None: ...

    def thawed(self, name: str, frozen_s: float) -> None: ...

    def died(self, name: str) -> None: ...

    def hearing_changed(self) -> None: ...


class MeshPort(Protocol):
    """The mesh as its processes and engines see it. `streams` has one stream per pair (gateway, worker) of names;
    `endpoints` has the engines by name; `homes` says on which engine a request is."""

    setup: MeshSetup
    heap: EventHeap
    journeys: dict[str, Journey]
    fallbacks: Counter[FallbackReason]
    homes: dict[str, str]
    doubled: int
    on_advice: Callable[[str, float], None]

    @property
    def cognition(self) -> CognitionPort: ...

    @property
    def endpoints(self) -> Mapping[str, EndpointPort]: ...

    @property
    def streams(self) -> Mapping[tuple[str, str], StreamPort]: ...

    def streams_of(self, name: str) -> Iterable[StreamPort]: ...

    def step(
        self, label: str, agent: Agent[Any, Any], event: object, handlers: Mapping[type, Callable[[Any], None]]
    ) -> None: ...

    def settle(self, request_id: str, outcome: Outcome) -> None: ...

    def publish(self, message: object) -> None: ...

    def publish_worker(self, telemetry: WorkerTelemetry) -> None: ...

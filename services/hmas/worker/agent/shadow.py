"""What the worker would have granted, where gateways place requests themselves and only observe.

A second worker agent lives beside the one in charge. It hears of each request that a gateway runs as if the request
waited for it. It does not hear what an engine counts of its requests and its cache, because these counts come from what
really runs there. It hears of everything else as the first agent does. What it grants is recorded and nobody carries it
out; to the second agent a request then takes as long as it really took. How long that is, is known only without limits:
engines that run fewer sequences at once would have been faster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from hmas.contracts.control import LayoutReceived, TopologyReceived, TupleReceived
from hmas.contracts.execution import Adopt, Annotate, Ended, FirstToken, Grant, Refusal, Started, Stop, Submit, Synced
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import (
    CycleTicked,
    DrainStarted,
    EngineLeft,
    EngineReturned,
    EngineSampled,
    EngineWentDown,
    EngineWentUp,
    FromGateway,
    GatewayConnected,
    GatewayLost,
    HeartbeatDue,
    KvCacheCounted,
    ToGateway,
    WorkerEffect,
    WorkerEvent,
)
from hmas.worker.agent.agent import WorkerAgent
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.agent.order.topologies import TOPOLOGIES, MakeTopology
from hmas.worker.agent.queue_view import QueueView

MAX_FLIGHTS = 65_536  # requests that are followed at once


@dataclass(slots=True)
class _Flight:
    """A request as it really runs and as it would have run; instants in seconds. `ttft_s`: until its first token,
    `end`: its end, and `total_s`: until then, None until they are known. `granted_s`, `grant`: of the second agent."""

    gateway: str
    begun_s: float
    ttft_s: float | None = None
    total_s: float | None = None
    end: Ended | None = None
    granted_s: float | None = None
    grant: int = 0
    answered: bool = False  # the second agent has heard of the first token


@dataclass(frozen=True, slots=True)
class WouldGrant:
    """A grant that the worker would have made, `waited_s` seconds after the request really began."""

    gateway: str
    grant: Grant
    waited_s: float


class ShadowWorker:
    """Steps the second agent: `step` takes what the first one heard, and returns what would have been granted."""

    def __init__(self, config: WorkerConfig, topologies: Mapping[str, MakeTopology] = TOPOLOGIES) -> None:
        self._agent = WorkerAgent(replace(config, takeover_s=0.0), topologies)
        self._flights: dict[str, _Flight] = {}

    def queue_view(self) -> QueueView:
        """Returns the queue as the second agent has it."""
        return self._agent.queue_view()

    def step(self, now_s: float, event: WorkerEvent) -> list[WouldGrant]:
        match event:
            case FromGateway(gateway, message):
                return self._hear(now_s, gateway, message)
            case GatewayConnected(gateway):
                return self._feed(now_s, event) + self._feed(now_s, FromGateway(gateway, Synced()))
            case GatewayLost(gateway):
                self._flights = {i: flight for i, flight in self._flights.items() if flight.gateway != gateway}
                return self._feed(now_s, event)
            case EngineSampled():
                own = sum(f.granted_s is not None for f in self._flights.values())
                return self._feed(now_s, replace(event, counted=False, running=own, waiting=0))
            case KvCacheCounted():
                return self._feed(now_s, replace(event, blocks=None, stored=0, removed=0))
            case HeartbeatDue():
                return []
            case CycleTicked():
                return self._play(now_s) + self._feed(now_s, event)
            case (
                EngineWentUp() | EngineWentDown() | EngineLeft() | EngineReturned()
                | TopologyReceived() | LayoutReceived() | TupleReceived() | DrainStarted()
            ):  # fmt: skip
                return self._feed(now_s, event)
            case _:
                assert_never(event)

    def _hear(self, now_s: float, gateway: str, message: object) -> list[WouldGrant]:
        match message:
            case Adopt(request=request, grant=0) if (
                request.id not in self._flights and len(self._flights) < MAX_FLIGHTS
            ):
                self._flights[request.id] = _Flight(gateway, message.granted_s)
                would = self._feed(now_s, FromGateway(gateway, Submit(request=request, attempt=message.attempt)))
                if message.annotation is not None:
                    note = Annotate(request.id, message.attempt, message.annotation)
                    would += self._feed(now_s, FromGateway(gateway, note))
                return would
            case Annotate(request_id) if request_id in self._flights:
                return self._feed(now_s, FromGateway(gateway, message))
            case FirstToken(request_id) if (flight := self._flights.get(request_id)) is not None:
                flight.ttft_s = now_s - flight.begun_s
            case Ended(request_id=request_id) if (flight := self._flights.get(request_id)) is not None:
                flight.end, flight.total_s = message, now_s - flight.begun_s
                return self._play(now_s)
            case _:
                pass
        return []

    def _play(self, now_s: float) -> list[WouldGrant]:
        """Lets the second agent hear what would have happened by now to what it has granted."""
        would: list[WouldGrant] = []
        for request_id, flight in list(self._flights.items()):
            if flight.granted_s is None:
                continue
            if flight.ttft_s is not None and not flight.answered and now_s >= flight.granted_s + flight.ttft_s:
                flight.answered = True
                would += self._feed(now_s, FromGateway(flight.gateway, FirstToken(request_id, flight.grant)))
            if flight.end is not None and now_s >= flight.granted_s + (flight.total_s or 0.0):
                end = replace(flight.end, grant=flight.grant, retryable=False)
                del self._flights[request_id]
                would += self._feed(now_s, FromGateway(flight.gateway, end))
        return would

    def _feed(self, now_s: float, event: WorkerEvent) -> list[WouldGrant]:
        would: list[WouldGrant] = []
        for effect in self._agent.step(now_s, event):
            would += self._answer(now_s, effect)
        return would

    def _answer(self, now_s: float, effect: WorkerEffect) -> list[WouldGrant]:
        match effect:
            case ToGateway(gateway, Grant() as grant):
                flight = self._flights.get(grant.request_id)
                if flight is None:
                    return []
                first = flight.granted_s is None
                flight.granted_s, flight.grant, flight.answered = now_s, grant.grant, False
                started = self._feed(now_s, FromGateway(gateway, Started(grant.request_id, grant.grant)))
                return [*([WouldGrant(gateway, grant, max(0.0, now_s - flight.begun_s))] if first else []), *started]
            case ToGateway(gateway, Stop(request_id, grant, reason)):
                back = Ended(
                    request_id=request_id, grant=grant, outcome=Outcome.ENGINE_ERROR, message=reason, retryable=True
                )
                return self._feed(now_s, FromGateway(gateway, back))
            case ToGateway(_, Refusal(request_id=request_id)):
                self._flights.pop(request_id, None)
                return []
            case _:
                return []

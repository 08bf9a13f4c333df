"""The simulator's shell around the gateway agent: clients on one side, streams to the workers on the other."""

from collections.abc import Callable
from typing import Any

from hmas.contracts.gateway import (
    AttemptConcluded,
    AttemptHandedBack,
    FirstTokenRelayed,
    GatewayTicked,
    PublishGatewayTelemetry,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    SendAnnotate,
    SendCancel,
    SendRecall,
    SendSubmit,
    Settle,
    StreamChanged,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Annotation
from hmas.contracts.worker import (
    Annotated,
    CancelRequested,
    Conclude,
    Handback,
    RecallRequested,
    Reject,
    Submitted,
)
from hmas.gateway.agent import GatewayAgent
from hmas.laws.scoring import tpot_s
from hmas.sim.ports import GatewayMessage, MeshPort
from hmas.sim.workload import OfferedRequest


class SimGateway:
    """Steps the gateway agent and turns its effects into later events of the workers and of the requests' journeys."""

    def __init__(self, mesh: MeshPort, agent: GatewayAgent) -> None:
        self.name = mesh.setup.gateway_config.gateway
        self.agent = agent
        self._mesh = mesh
        self._heap = mesh.heap
        self.on_advice: Callable[[str, float], None] = _ignore  # called with a late refusal's id and retry_after_s
        self._attempts: dict[str, int] = {}  # the latest attempt; after its dispatch no other one follows
        self._handlers: dict[type, Callable[[Any], None]] = {
            SendSubmit: self._submit,
            SendAnnotate: lambda e: self._send(e.worker, Annotated(e.request_id, e.attempt, e.annotation)),
            SendCancel: lambda e: self._send(e.worker, CancelRequested(e.request_id, e.attempt)),
            SendRecall: lambda e: self._send(e.worker, RecallRequested(e.request_id, e.attempt)),
            Refuse: lambda e: mesh.settle(e.request_id, e.outcome),
            Settle: self._settle,
            PublishGatewayTelemetry: lambda e: mesh.publish(e.telemetry),
        }

    def start(self) -> None:
        for worker in self._mesh.workers.values():
            self.step(StreamChanged(worker.name, True))
        self._mesh.every(self._mesh.setup.cadences.gateway_tick_s, self._tick)

    def step(self, event: Any) -> None:
        self._mesh.step(self.name, self.agent, event, self._handlers)

    def _tick(self) -> None:
        self.step(GatewayTicked())

    def arrive(self, offered: OfferedRequest) -> None:
        """Takes a new request from a client; it goes to the agent and to cognition at the same instant."""
        self.step(RequestReceived(offered.request, offered.content))
        self._mesh.cognition.ask(offered)

    def annotated(self, offered: OfferedRequest, annotation: Annotation) -> None:
        self.step(RequestAnnotated(offered.id, annotation))

    def first_token(self, request_id: str) -> None:
        journey = self._mesh.journeys[request_id]
        if journey.first_token_s is None:
            journey.first_token_s = self._heap.now_s
        self.step(FirstTokenRelayed(request_id, self._attempts[request_id]))

    def concluded(self, effect: Conclude) -> None:
        """Takes the end of an attempt from a worker. TPOT is measured where the worker receives the tokens; the delay
        from there to the client is the same for all tokens and cancels out."""
        journey = self._mesh.journeys[effect.request_id]
        gap_s = 0.0
        if journey.engine_first_s is not None and journey.engine_last_s is not None:
            gap_s = tpot_s(journey.engine_first_s, journey.engine_last_s, effect.output_tokens)
            journey.last_token_s = self._heap.now_s
        self.step(
            AttemptConcluded(
                request_id=effect.request_id,
                attempt=effect.attempt,
                outcome=effect.outcome,
                message=effect.message,
                output_tokens=effect.output_tokens,
                tpot_s=gap_s,
                timeline=effect.timeline,
            )
        )

    def rejected(self, effect: Reject) -> None:
        self.step(
            AttemptConcluded(
                request_id=effect.request_id,
                attempt=effect.attempt,
                outcome=effect.outcome,
                message=effect.message,
                retry_after_s=effect.retry_after_s,
            )
        )

    def handed_back(self, effect: Handback) -> None:
        self.step(AttemptHandedBack(effect.request_id, effect.attempt))

    def _settle(self, effect: Settle) -> None:
        if effect.outcome is Outcome.SLO_UNREACHABLE and effect.retry_after_s is not None:
            self.on_advice(effect.request_id, effect.retry_after_s)
        self._mesh.settle(effect.request_id, effect.outcome)

    def _submit(self, effect: SendSubmit) -> None:
        self._attempts[effect.request_id] = effect.attempt
        request = self._mesh.journeys[effect.request_id].offered.request
        self._send(effect.worker, Submitted(request, effect.attempt, self.name, effect.promised))

    def _send(self, worker: str, event: GatewayMessage) -> None:
        self._mesh.workers[worker].submit(event)


def _ignore(request_id: str, retry_after_s: float) -> None:
    pass

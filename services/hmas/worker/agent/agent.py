"""The worker agent: it hears events and answers each with the effects that its shell is to carry out."""

from typing import assert_never

from hmas.contracts.control import TopologyReceived, TupleReceived
from hmas.contracts.worker import (
    Annotated,
    CancelRequested,
    CycleTicked,
    DrainStarted,
    EngineFailed,
    EngineFinished,
    EngineSampled,
    EngineWentDown,
    EngineWentUp,
    FirstTokenReceived,
    GatewayLost,
    HeartbeatDue,
    ProgressSampled,
    RecallRequested,
    Submitted,
    WorkerEffect,
    WorkerEvent,
)
from hmas.worker.agent import engine_events, intake, regulation
from hmas.worker.agent.config import RandomSource, WorkerConfig
from hmas.worker.agent.pump import pump
from hmas.worker.agent.state import AgentState

__all__ = ["WorkerAgent", "WorkerConfig"]


class WorkerAgent:
    """Queues the requests of one worker, decides when each may start and on which engine (DESIGN §5.6).

    The shell must send it `CycleTicked` about every 100 ms and `HeartbeatDue` every second, and no event about a
    dispatch after the `Abort` of that dispatch. The shell must carry out the effects of a step in their order.
    """

    def __init__(self, config: WorkerConfig, rng: RandomSource) -> None:
        self._state = AgentState(config, rng)

    def step(self, now_s: float, event: WorkerEvent) -> list[WorkerEffect]:
        state = self._state
        state.now_s = now_s
        if state.engineless_since_s is None and not state.up:
            state.engineless_since_s = now_s
        effects = self._handle(event)
        if state.queue.waiting:
            effects += pump(state)
        if state.ledger.full:
            effects.append(regulation.report(state))
        return effects

    def _handle(self, event: WorkerEvent) -> list[WorkerEffect]:
        state = self._state
        match event:
            case Submitted():
                return intake.on_submitted(state, event)
            case Annotated():
                intake.on_annotated(state, event)
            case FirstTokenReceived():
                engine_events.on_first_token(state, event)
            case EngineFinished():
                return engine_events.on_finished(state, event)
            case ProgressSampled():
                engine_events.on_progress(state, event)
            case CycleTicked():
                return regulation.on_cycle(state)
            case EngineSampled():
                engine_events.on_sampled(state, event)
            case TopologyReceived():
                return regulation.on_topology(state, event)
            case TupleReceived():
                return regulation.on_tuple(state, event)
            case HeartbeatDue():
                return [regulation.heartbeat(state)]
            case CancelRequested():
                return intake.on_cancelled(state, event)
            case RecallRequested():
                return intake.on_recalled(state, event)
            case EngineFailed():
                return engine_events.on_failed(state, event)
            case EngineWentUp():
                return regulation.on_engine_up(state, event)
            case EngineWentDown():
                return engine_events.on_engine_down(state, event)
            case GatewayLost():
                return intake.on_gateway_lost(state, event)
            case DrainStarted():
                return intake.on_drain(state)
            case _:
                assert_never(event)
        return []

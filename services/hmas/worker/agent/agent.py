"""The worker agent: events in, effects out."""

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
from hmas.worker.agent.core import WorkerCore
from hmas.worker.agent.pump import pump

__all__ = ["WorkerAgent", "WorkerConfig"]


class WorkerAgent:
    """Orders, admits and places the requests of one worker (DESIGN §5.6).

    The shell owes it: `CycleTicked` about every 100 ms, `HeartbeatDue` every second, and no event about a dispatch
    after the `Abort` of that dispatch. Effects are to be carried out in order.
    """

    def __init__(self, config: WorkerConfig, rng: RandomSource) -> None:
        self._core = WorkerCore(config, rng)

    def step(self, now_s: float, event: WorkerEvent) -> list[WorkerEffect]:
        core = self._core
        core.now_s = now_s
        effects: list[WorkerEffect] = []
        core.effects = effects
        if core.engineless_since_s is None and not core.up:
            core.engineless_since_s = now_s
        self._handle(event)
        if core.pool.waiting:
            pump(core)
        if core.ledger.full:
            regulation.report(core)
        return effects

    def _handle(self, event: WorkerEvent) -> None:
        core = self._core
        match event:
            case Submitted():
                intake.on_submitted(core, event)
            case Annotated():
                intake.on_annotated(core, event)
            case FirstTokenReceived():
                engine_events.on_first_token(core, event)
            case EngineFinished():
                engine_events.on_finished(core, event)
            case ProgressSampled():
                engine_events.on_progress(core, event)
            case CycleTicked():
                regulation.on_cycle(core)
            case EngineSampled():
                engine_events.on_sampled(core, event)
            case TopologyReceived():
                regulation.on_topology(core, event)
            case TupleReceived():
                regulation.on_tuple(core, event)
            case HeartbeatDue():
                regulation.heartbeat(core)
            case CancelRequested():
                intake.on_cancelled(core, event)
            case RecallRequested():
                intake.on_recalled(core, event)
            case EngineFailed():
                engine_events.on_failed(core, event)
            case EngineWentUp():
                regulation.on_engine_up(core, event)
            case EngineWentDown():
                engine_events.on_engine_down(core, event)
            case GatewayLost():
                intake.on_gateway_lost(core, event)
            case DrainStarted():
                intake.on_drain(core)
            case _:
                assert_never(event)

"""The worker agent: events in, effects out."""

from typing import assert_never

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
    TopologyReceived,
    TupleReceived,
    WorkerEffect,
    WorkerEvent,
)

from services.worker import intake, regulation, serving
from services.worker.config import Draw, WorkerConfig
from services.worker.core import WorkerCore
from services.worker.pump import pump

__all__ = ["WorkerAgent", "WorkerConfig"]


class WorkerAgent:
    """Orders, admits and places the requests of one worker (DESIGN §5.6).

    The shell owes it: `CycleTicked` about every 100 ms, `HeartbeatDue` every second, and no event about a dispatch
    after the `Abort` of that dispatch. Effects are to be carried out in order.
    """

    def __init__(self, config: WorkerConfig, rng: Draw) -> None:
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
                serving.on_first_token(core, event)
            case EngineFinished():
                serving.on_finished(core, event)
            case ProgressSampled():
                serving.on_progress(core, event)
            case CycleTicked():
                regulation.on_cycle(core)
            case EngineSampled():
                serving.on_sampled(core, event)
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
                serving.on_failed(core, event)
            case EngineWentUp():
                regulation.on_engine_up(core, event)
            case EngineWentDown():
                serving.on_engine_down(core, event)
            case GatewayLost():
                intake.on_gateway_lost(core, event)
            case DrainStarted():
                intake.on_drain(core)
            case _:
                assert_never(event)

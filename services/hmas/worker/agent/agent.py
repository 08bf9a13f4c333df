"""The worker agent: it hears events and answers each with the effects that its shell is to carry out."""

from collections.abc import Mapping
from typing import assert_never

from hmas.contracts.control import LayoutReceived, TopologyReceived, TupleReceived
from hmas.contracts.execution import (
    Adopt,
    Annotate,
    Declined,
    Ended,
    FirstToken,
    GatewayMessage,
    Prefilled,
    Progress,
    Started,
    Submit,
    Synced,
    Withdraw,
)
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
    LayoutSwitched,
    WorkerEffect,
    WorkerEvent,
)
from hmas.worker.agent import adoption, announcements, engine_events, intake, regulation, sleeping
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.agent.gateways import Gateway
from hmas.worker.agent.order.topologies import TOPOLOGIES, MakeTopology
from hmas.worker.agent.order_faults import fault_in
from hmas.worker.agent.pump import pump
from hmas.worker.agent.queue_view import QueueView, queue_view
from hmas.worker.agent.state import WorkerState

__all__ = ["WorkerAgent", "WorkerConfig"]


class WorkerAgent:
    """Queues the requests of one worker, decides when each may start and on which engine (DESIGN §5.6).

    The shell must send it `CycleTicked` about every 100 ms and `HeartbeatDue` every second, and must carry out the
    effects of a step in their order. `topologies` makes the orders of the queue, by name.
    """

    def __init__(self, config: WorkerConfig, topologies: Mapping[str, MakeTopology] = TOPOLOGIES) -> None:
        self._state = WorkerState(config, topologies)

    def step(self, now_s: float, event: WorkerEvent) -> list[WorkerEffect]:
        state = self._state
        state.now_s = now_s
        if state.engineless_since_s is None and not state.up:
            state.engineless_since_s = now_s
        if isinstance(event, LayoutReceived) and not regulation.take_layout(state, event):
            return []  # it repeats the layout in force
        effects = self._handle(event)
        if state.layout_before is not None:
            effects.append(LayoutSwitched(state.layout_before, state.layout, len(state.lanes), len(state.queue)))
            state.layout_before = None
        if state.queue.waiting and not state.draining:
            if state.untagged:
                state.admit_overdue()
            effects += pump(state)
        if fault_in(state.queue) is not None:
            effects += regulation.take_out(state)
        if state.reports.full:
            effects.append(announcements.report(state))
        return effects

    def queue_view(self) -> QueueView:
        """Returns the queue as it is, for those who look on; nothing changes by it."""
        return queue_view(self._state)

    def _handle(self, event: WorkerEvent) -> list[WorkerEffect]:
        state = self._state
        match event:
            case FromGateway(name, message):
                gateway = state.gateways.get(name)
                if gateway is None:
                    return []
                effects = self._hear(gateway, message)
                if gateway.lagging and gateway.see(state.now_s):
                    state.wake(gateway)  # it has answered what it was late with
                return effects
            case CycleTicked():
                return regulation.on_cycle(state)
            case EngineSampled():
                return sleeping.on_sampled(state, event)
            case KvCacheCounted():
                engine_events.on_counted(state, event)
            case TopologyReceived():
                return regulation.on_topology(state, event)
            case LayoutReceived():
                state.arrange()
            case TupleReceived():
                return regulation.on_tuple(state, event)
            case HeartbeatDue():
                return announcements.heartbeat(state)
            case GatewayConnected(name):
                intake.on_connected(state, name)
            case GatewayLost(name):
                intake.on_lost(state, name)
            case EngineWentUp():
                return regulation.on_engine_up(state, event)
            case EngineWentDown():
                return engine_events.on_engine_down(state, event)
            case EngineLeft():
                engine_events.on_engine_left(state, event)
            case EngineReturned(name):
                engine_events.on_engine_returned(state, name)
            case DrainStarted():
                return intake.on_drain(state)
            case _:
                assert_never(event)
        return []

    def _hear(self, gateway: Gateway, message: GatewayMessage) -> list[WorkerEffect]:
        state = self._state
        match message:
            case Submit():
                return intake.on_submit(state, gateway, message)
            case Annotate():
                intake.on_annotate(state, gateway, message)
            case Started():
                engine_events.on_started(state, gateway, message)
            case Prefilled():
                return engine_events.on_prefilled(state, gateway, message)
            case FirstToken():
                return engine_events.on_first_token(state, gateway, message)
            case Progress():
                return engine_events.on_progress(state, gateway, message)
            case Ended():
                return engine_events.on_ended(state, gateway, message)
            case Declined():
                return engine_events.on_declined(state, gateway, message)
            case Withdraw():
                intake.on_withdraw(state, gateway, message)
            case Adopt():
                return adoption.on_adopt(state, gateway, message)
            case Synced():
                return intake.on_synced(state, gateway)
            case _:
                assert_never(message)
        return []

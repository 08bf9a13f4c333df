"""The gateway agent accepts or refuses requests, routes them, carries out grants and settles each exactly once."""

from typing import assert_never

from hmas.contracts.execution import Grant, Load, Proceed, Refusal, Stop, WorkerMessage
from hmas.contracts.gateway import (
    ClientLeft,
    FirstTokenRelayed,
    FromWorker,
    GatewayDrainExpired,
    GatewayDraining,
    GatewayEffect,
    GatewayEvent,
    GatewayTicked,
    KeysEnded,
    PromptComputed,
    QueueTurn,
    RequestAnnotated,
    RequestReceived,
    RunEnded,
    RunHandedOver,
    RunsProgressed,
    StreamChanged,
    TenantsChanged,
    UseReported,
    ViewReceived,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.handlers import (
    arrivals,
    endings,
    grants,
    membership,
    neighbours,
    runs,
    second_legs,
    submissions,
)
from hmas.gateway.agent.handlers.turns import turn
from hmas.gateway.agent.jobs.job_outlook import JobOutlook
from hmas.gateway.agent.routing.route_chooser import RouteChooser
from hmas.gateway.agent.state import GatewayState


class GatewayAgent:
    """The agent of one gateway: `step` takes a `GatewayEvent` and returns a list of `GatewayEffect`.

    `step` raises ValueError if a request is received whose id belongs to a request that has not ended. `chooser`
    chooses among a pool's workers where the prompt is known.
    """

    def __init__(self, config: GatewayConfig, chooser: RouteChooser | None = None) -> None:
        self._state = GatewayState(config, chooser)

    @property
    def live(self) -> int:
        """The number of requests that were accepted and are not settled yet."""
        return len(self._state.ledger)

    @property
    def job_outlook(self) -> JobOutlook:
        return self._state.job_outlook

    def turn(self, now_s: float, request_id: str) -> QueueTurn | None:
        """Returns when a waiting request will have its turn, None if it does not wait; nothing changes by it."""
        return turn(self._state, now_s, request_id)

    def step(self, now_s: float, event: GatewayEvent) -> list[GatewayEffect]:
        self._state.now_s = now_s
        effects = self._handle(event)
        full = self._state.batches.full()
        return [*effects, *full] if full else effects

    def _handle(self, event: GatewayEvent) -> list[GatewayEffect]:
        state = self._state
        match event:
            case RequestReceived():
                return arrivals.on_received(state, event)
            case RequestAnnotated():
                return submissions.on_annotated(state, event)
            case FromWorker(worker, message):
                return self._hear(worker, message) if state.router.is_connected(worker) else []
            case PromptComputed():
                return second_legs.on_prompt_computed(state, event)
            case FirstTokenRelayed():
                return runs.on_first_relayed(state, event)
            case RunHandedOver():
                runs.on_run_handed_over(state, event)
            case RunsProgressed():
                return runs.on_runs_progressed(state, event)
            case RunEnded():
                return runs.on_run_ended(state, event)
            case ClientLeft():
                return endings.on_client_left(state, event)
            case KeysEnded():
                return endings.on_keys_ended(state, event)
            case HeartbeatReceived(heartbeat):
                return membership.on_heartbeat(state, heartbeat)
            case StreamChanged():
                return membership.on_stream(state, event)
            case GatewayTicked():
                return self._tick()
            case ViewReceived(view):
                state.waits.hear(state.now_s, view)
            case UseReported(report):
                neighbours.on_report(state, report)
            case TenantsChanged(limits, classes):
                state.tenants.change(state.now_s, limits)
                state.classes = {each.task: each.weight for each in classes}
            case GatewayDraining():
                state.draining = True
            case GatewayDrainExpired():
                return endings.on_drain_expired(state)
            case _:
                assert_never(event)
        return []

    def _hear(self, worker: str, message: WorkerMessage) -> list[GatewayEffect]:
        state = self._state
        match message:
            case Grant():
                return grants.on_grant(state, worker, message)
            case Proceed():
                return second_legs.on_proceed(state, worker, message)
            case Stop():
                return grants.on_stop(state, worker, message)
            case Refusal():
                return grants.on_refusal(state, worker, message)
            case Load():
                return membership.on_load(state, worker, message)
            case _:
                assert_never(message)

    def _tick(self) -> list[GatewayEffect]:
        state = self._state
        effects = runs.fill_bypass(state)
        effects += second_legs.tend(state)
        for stall in state.stalls.tick(state.now_s):
            effects += runs.give_up(state, stall)
        effects += endings.end_forlorn(state)
        effects += endings.end_overdue(state)
        effects += submissions.rebalance(state)
        state.router.forget_silent(state.now_s)
        state.job_outlook.tick(state.now_s)
        return [*effects, *neighbours.tell(state), *state.batches.due(state.now_s)]

"""How the gateway agent reacts to workers that come and go: their heartbeats, their loads, and their streams."""

from hmas.contracts.execution import Load, Synced
from hmas.contracts.gateway import GatewayEffect, StreamChanged, ToWorker
from hmas.contracts.registry import WorkerHeartbeat
from hmas.gateway.agent.handlers.submissions import adoption, empty, release_held, submission
from hmas.gateway.agent.state import GatewayState


def on_heartbeat(state: GatewayState, heartbeat: WorkerHeartbeat) -> list[GatewayEffect]:
    state.directory.hear(heartbeat)
    state.router.hear(state.now_s, heartbeat)
    effects = empty(state, heartbeat.worker) if heartbeat.draining else []
    return effects + release_held(state) if state.ledger.held_count else effects


def on_load(state: GatewayState, worker: str, load: Load) -> list[GatewayEffect]:
    state.router.load(state.now_s, worker, load)
    state.stalls.report(state.now_s, worker, load)
    return empty(state, worker) if load.draining else []


def on_stream(state: GatewayState, event: StreamChanged) -> list[GatewayEffect]:
    if event.connected:
        return _connect(state, event.worker)
    return _disconnect(state, event.worker, state.now_s - event.silent_s)


def _connect(state: GatewayState, worker: str) -> list[GatewayEffect]:
    """Sends the worker a snapshot of what this gateway has there, and then what was held."""
    state.router.connect(worker)
    state.bypass.forget(worker)
    effects: list[GatewayEffect] = []
    for entry in state.ledger.queued_at(worker):
        effects += submission(entry, again=True)
    for entry in state.ledger.running_at(worker):
        effects.append(ToWorker(worker, adoption(state, entry)))
    return [*effects, ToWorker(worker, Synced()), *release_held(state)]


def _disconnect(state: GatewayState, worker: str, silent_since_s: float) -> list[GatewayEffect]:
    if not state.router.is_connected(worker):
        return []
    state.router.disconnect(worker, silent_since_s)
    state.stalls.lose(state.now_s, worker)
    return empty(state, worker)

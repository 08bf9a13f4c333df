"""Whether an engine may be granted a request, whatever memory and time it has for it."""

from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.gateways import Gateway
from hmas.worker.agent.state import WorkerState


def may_take(state: WorkerState, gateway: Gateway, entry: QueueEntry, engine: EngineState) -> bool:
    """Returns whether an open engine is ready, reached by the request's gateway, not held back, large enough, and none
    that has lost the request before."""
    if entry.tried and engine.start_id in entry.tried:
        return False
    if not state.gate.could_ever(engine, entry.request.prompt_tokens):
        return False
    if state.now_s < engine.life.held_until_s or not engine.ready(state.now_s, state.config.gateways.uncounted_s):
        return False
    if engine.counts.in_flight and engine.regulator.saturated < 0:
        return False  # held back by the inner loop, which never idles an engine
    return not gateway.blocked(state.now_s, engine.name)

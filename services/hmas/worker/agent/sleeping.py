"""What the worker does with an engine that is asleep: somebody has paused it, and it still answers health checks.

Asleep is neither up nor down. Nothing is granted there, and nothing is given up because of it: what only such an
engine could take waits until it wakes, and what runs there with a token stays, because it may go on (vLLM's
`mode=keep`). What has no token yet is asked back: a stream at once, of which at most a prefill is lost. An answer that
is not streamed shows nothing before its end, so it is asked back once the engine has slept for as long as the request
had been there: then waiting costs at most twice what the better choice would have.
"""

from dataclasses import replace

from hmas.contracts.worker import EngineSampled, EngineSlept, WorkerEffect
from hmas.worker.agent import announcements, engine_events
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.state import WorkerState


def on_sampled(state: WorkerState, event: EngineSampled) -> list[WorkerEffect]:
    """Takes a sample of an engine, and tells everyone at once if it shows that the engine fell asleep or woke."""
    engine = state.fleet.get(event.engine)
    engine_events.on_sampled(state, event)
    if engine is None:
        return []
    before, level = engine.info.sleep_level, event.sleep_level if engine.life.asleep else None
    if level == before:
        return []
    engine.info = replace(engine.info, sleep_level=level)
    if level:
        engine.prefix.clear()
    state.see_engines()
    effects: list[WorkerEffect] = [EngineSlept(engine.name, level), *ask_back(state)]
    if level is None:
        engine_events.wake_gateways(state)
    return effects + announcements.heartbeat(state)


def ask_back(state: WorkerState) -> list[WorkerEffect]:
    """Asks gateways to give back what sleeping engines have shown no token of, and have had long enough."""
    return [
        effect
        for engine in state.fleet.values()
        if engine.life.asleep
        for entry in list(engine.running.values())
        if engine_events.untouched(entry) and _is_due(state, engine, entry)
        for effect in engine_events.stop(state, entry, f"engine {engine.name} was put to sleep before the first token")
    ]


def _is_due(state: WorkerState, engine: EngineState, entry: QueueEntry) -> bool:
    if entry.request.stream or entry.granted_s is None:
        return True
    return state.now_s - engine.life.slept_s >= engine.life.slept_s - entry.granted_s

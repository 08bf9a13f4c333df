"""The pump: strict head-of-line dispatch onto the engine with room and the least load (H-MAS §3.5)."""

from math import inf

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import Dispatch
from hmas.worker.agent.core import WorkerCore
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.entry import QueueEntry


def pump(core: WorkerCore) -> None:
    """Dispatch from the head while it fits an engine, at most `max_dispatches_per_pump` at once (the next event or
    cycle goes on). What does not fit waits, and all behind it: the topology alone decides who is next. A head that
    no engine that is up can ever take is ended, so that it blocks nobody."""
    pool = core.pool
    fenced = not core.controls.bypass
    left = core.config.max_dispatches_per_pump
    if pool.paced and pool.waiting > 1 and any(len(engine.running) < engine.cap for engine in core.up):
        pool.observe(core.service_view())
    while left and core.up and (entry := pool.peek()) is not None:
        left -= 1
        engine, hopeful = choose(core, entry, fenced)
        if engine is not None:
            dispatch(core, engine)
        elif hopeful:
            return
        else:
            end_unservable(core, entry)


def choose(core: WorkerCore, entry: QueueEntry, fenced: bool) -> tuple[EngineState | None, bool]:
    """The engine to put `entry` on, with its reservation written into it, and whether waiting can help if none."""
    gate, prefill_s = core.gate, core.prefill_s(entry)
    window_s = core.config.prefill_window_s + core.lag_s  # what was computed meanwhile is not known here yet
    upper = gate.upper(entry)
    prompt_tokens = entry.request.prompt_tokens
    best: EngineState | None = None
    best_load, best_blocks = inf, 0
    hopeful = False
    for engine in core.up:
        if entry.tried and engine.start_id in entry.tried:
            continue
        if not gate.could_ever(engine, prompt_tokens):
            continue
        hopeful = True
        if core.now_s < engine.held_until_s:
            continue
        in_flight = len(engine.running)
        if in_flight >= engine.cap or (in_flight and engine.regulator.saturated < 0):
            continue  # held back by the inner loop, which never idles an engine
        blocks = gate.need(engine, entry, upper)
        if fenced and not gate.admits(core.now_s, engine, entry, blocks):
            continue
        if fenced and not engine.prefill.admits(prefill_s, window_s):
            continue
        load = in_flight / engine.cap
        if load < best_load:
            best, best_load, best_blocks = engine, load, blocks
    if best is not None:
        entry.blocks = best_blocks
        entry.bound_tokens = entry.upper_output_tokens = upper
    return best, hopeful


def dispatch(core: WorkerCore, engine: EngineState) -> None:
    """The head runs on `engine`."""
    entry = core.pool.take()
    entry.engine = engine.name
    entry.topology = core.pool.topology.value
    entry.dispatched_s = core.now_s
    engine.occupy(core.now_s, entry, core.prefill_s(entry))
    core.ledger.dispatched(core.now_s, entry)
    core.effects.append(Dispatch(entry.request.id, engine.name, entry.urgency, entry.pace_s))


def end_unservable(core: WorkerCore, entry: QueueEntry) -> None:
    """No engine that is up can take it, now or later."""
    prompt_tokens = entry.request.prompt_tokens
    if entry.tried:
        core.reject(entry, Outcome.ENGINE_ERROR, f"lost on {', '.join(entry.tried)}; no other engine can take it")
    elif any(core.gate.could_ever(engine, prompt_tokens) for engine in core.fleet.values()):
        core.reject(entry, Outcome.NO_ENGINE, f"the engines large enough for {prompt_tokens} prompt tokens are down")
    else:
        message = core.gate.explain_never(list(core.fleet.values()), prompt_tokens)
        core.reject(entry, Outcome.NEVER_FITS, message)

"""Events from engines: tokens, ends, failures, engines that come and go."""

from dataclasses import replace

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import (
    Abort,
    EngineFailed,
    EngineFinished,
    EngineSampled,
    EngineWentDown,
    EngineWentUp,
    FirstTokenReceived,
    ProgressSampled,
)
from hmas.worker.agent.core import WorkerCore
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.entry import EntryState, QueueEntry

BUSY_S = 0.1  # an engine without room is left alone


def _running(core: WorkerCore, request_id: str) -> QueueEntry | None:
    """None for what ended or was taken from its engine meanwhile."""
    entry = core.pool.get(request_id)
    return entry if entry is not None and entry.state is EntryState.RUNNING else None


def on_first_token(core: WorkerCore, event: FirstTokenReceived) -> None:
    entry = _running(core, event.request_id)
    if entry is None or entry.first_token_s is not None or entry.dispatched_s is None:
        return
    core.fleet[entry.engine].began(core.now_s, entry)
    core.meter.add(entry.prefill_s + entry.tpot_s)
    prefill_s = core.now_s - entry.dispatched_s
    core.ledger.first_token(core.now_s, entry, prefill_s)
    core.prior.learn_prefill(entry.request.prompt_tokens, prefill_s)


def on_progress(core: WorkerCore, event: ProgressSampled) -> None:
    for request_id, output_tokens in event.output_tokens:
        entry = _running(core, request_id)
        if entry is None or output_tokens <= entry.output_tokens:
            continue
        _produce(core, entry, output_tokens)
        core.pool.account(entry, entry.received_service, final=False)
        if output_tokens > entry.bound_tokens:
            _grow(core, entry)


def _produce(core: WorkerCore, entry: QueueEntry, output_tokens: int) -> None:
    core.meter.add(entry.tpot_s * (output_tokens - entry.output_tokens))
    core.fleet[entry.engine].produced(entry, output_tokens)


def _grow(core: WorkerCore, entry: QueueEntry) -> None:
    """It outgrew its bound: reserve by the rolling estimate. The peak may exceed the budget until others end."""
    engine = core.fleet[entry.engine]
    entry.bound_tokens = core.gate.grown(entry)
    engine.reserve(entry, max(entry.blocks, core.gate.need(engine, entry, entry.bound_tokens)))


def on_finished(core: WorkerCore, event: EngineFinished) -> None:
    entry = _running(core, event.request_id)
    if entry is None:
        return
    if entry.first_token_s is None:  # not streamed: the prefill shows only now
        core.meter.add(entry.prefill_s)
    _produce(core, entry, max(event.output_tokens, entry.output_tokens))
    core.conclude(entry, Outcome.FINISHED, "")
    core.prior.learn_length(entry.request.tenant, entry.request.prompt_tokens, entry.output_tokens)
    core.applications.learn(entry.request, entry.output_tokens)
    if entry.claimed is not None:
        core.length_bias.learn(entry.request, entry.claimed, entry.output_tokens)
    if entry.first_token_s is not None and entry.output_tokens > 1:
        core.prior.learn_decode((core.now_s - entry.first_token_s) / (entry.output_tokens - 1))


def on_failed(core: WorkerCore, event: EngineFailed) -> None:
    entry = _running(core, event.request_id)
    if entry is None:
        return
    untouched = entry.first_token_s is None and not entry.output_tokens and not event.output_tokens
    if event.busy and untouched and _waits_for_room(core, entry):
        _back_to_the_queue(core, entry)
        return
    if event.retryable and untouched and (core.draining or _another(core, entry)):
        _retry(core, entry)
        return
    core.fleet[entry.engine].produced(entry, event.output_tokens)
    core.conclude(entry, event.outcome, event.message)


def _waits_for_room(core: WorkerCore, entry: QueueEntry) -> bool:
    """Whether to ask again later: as long as requests outlast the last engine. Its engine is left alone meanwhile."""
    core.fleet[entry.engine].held_until_s = core.now_s + BUSY_S
    if entry.busy_since_s is None:
        entry.busy_since_s = core.now_s
    return core.now_s - entry.busy_since_s < core.config.no_engine_patience_s


def _another(core: WorkerCore, entry: QueueEntry) -> bool:
    """Whether an engine that is up has not lost it yet (nor is losing it now) and could take it."""
    lost = (*entry.tried, core.fleet[entry.engine].start_id)
    return any(e.start_id not in lost and core.gate.could_ever(e, entry.request.prompt_tokens) for e in core.up)


def _retry(core: WorkerCore, entry: QueueEntry) -> None:
    """Elsewhere, or on a later start of its engine."""
    entry.tried = (*entry.tried, core.fleet[entry.engine].start_id)
    _back_to_the_queue(core, entry)


def _back_to_the_queue(core: WorkerCore, entry: QueueEntry) -> None:
    """To its place, or to the gateway when draining."""
    core.fleet[entry.engine].release(core.now_s, entry)
    core.pool.requeue(entry)
    entry.engine = ""
    entry.dispatched_s = None
    if core.draining:
        core.hand_back(entry)


def on_sampled(core: WorkerCore, event: EngineSampled) -> None:
    engine = core.fleet.get(event.engine)
    if engine is not None:
        engine.see(core.now_s, event)


def on_engine_up(core: WorkerCore, event: EngineWentUp) -> EngineState:
    """A new engine, a known one that came back (another start), or news about one that is up."""
    engine = core.fleet.get(event.info.engine)
    if engine is None:
        engine = core.fleet[event.info.engine] = EngineState(event.info)
    engine.info = replace(event.info, up=True)
    engine.budget_blocks = core.gate.budget_blocks(engine.info)
    if not engine.up:
        engine.up = True
        engine.starts += 1
        core.up = [e for e in core.fleet.values() if e.up]
        core.engineless_since_s = None
    return engine


def on_engine_down(core: WorkerCore, event: EngineWentDown) -> None:
    """Requests on it that have no token yet go back to the queue, once per engine start and at most once more than
    there are engines. Those with tokens stay with their own connections, whose end decides."""
    engine = core.fleet.get(event.engine)
    if engine is None or not engine.up:
        return
    engine.up = False
    engine.info = replace(engine.info, up=False)
    core.up = [e for e in core.fleet.values() if e.up]
    if not core.up:
        core.engineless_since_s = core.now_s
    for entry in list(engine.running.values()):
        if entry.first_token_s is not None or entry.output_tokens:
            continue
        if len(entry.tried) > len(core.fleet):
            core.drop(entry, Outcome.ENGINE_ERROR, f"engine {engine.name} went down: {event.reason}")
            continue
        core.effects.append(Abort(entry.request.id, engine.name))
        _retry(core, entry)

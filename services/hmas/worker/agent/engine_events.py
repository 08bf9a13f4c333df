"""How the worker agent reacts to what happens to granted requests: gateways tell of starts, tokens and ends, engines of
their load and of coming up and going down."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

from hmas.contracts.execution import Declined, Ended, FirstToken, Prefilled, Proceed, Progress, Started, Stop
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import EngineInfo
from hmas.contracts.worker import (
    EngineLeft,
    EngineSampled,
    EngineSuspected,
    EngineWentDown,
    EngineWentUp,
    KvCacheCounted,
    ReleaseEngine,
    ToGateway,
    WorkerEffect,
)
from hmas.worker.agent import ends
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import EntryState, QueueEntry
from hmas.worker.agent.gateways import Gateway
from hmas.worker.agent.intake import succeed
from hmas.worker.agent.split.rules import partnered
from hmas.worker.agent.state import WorkerState


def _running(state: WorkerState, gateway: Gateway, request_id: str, grant: int | None = None) -> QueueEntry | None:
    """Returns the request if the gateway runs it under that grant (None: under any); None if the message is late."""
    entry = state.queue.get(request_id)
    if entry is None or entry.state is not EntryState.RUNNING or entry.gateway != gateway.name:
        return None
    return entry if grant is None or grant == entry.grant else None


def untouched(entry: QueueEntry) -> bool:
    """Returns whether no token of a granted request is known of."""
    return entry.first_token_s is None and not entry.output_tokens


def on_started(state: WorkerState, gateway: Gateway, message: Started) -> None:
    if _running(state, gateway, message.request_id, message.grant) is not None:
        gateway.answered(message.request_id)


def on_prefilled(state: WorkerState, gateway: Gateway, message: Prefilled) -> list[WorkerEffect]:
    """Lets a split request whose prompt is computed go on to the engine that answers it."""
    entry = _running(state, gateway, message.request_id, message.grant)
    if entry is None or not entry.prefill_on:
        return []
    gateway.answered(entry.request.id)
    gateway.reached(state.now_s, entry.prefill_on)
    lender, effects = state.fleet.get(entry.prefill_on), list[WorkerEffect]()
    if state.split_books.computed(state.now_s, entry) and lender is not None:
        effects += _trust(state, lender)
        if message.cached_tokens is not None:
            lender.prefix.learn(entry.expected_cached, message.cached_tokens)
    due_in_s = None if entry.relegated else entry.ttft_deadline_s - state.now_s
    return [*effects, ToGateway(gateway.name, Proceed(entry.request.id, entry.grant, entry.engine, due_in_s))]


def on_first_token(state: WorkerState, gateway: Gateway, message: FirstToken) -> list[WorkerEffect]:
    entry = _running(state, gateway, message.request_id, message.grant)
    if entry is None or entry.first_token_s is not None or entry.granted_s is None:
        return []
    gateway.answered(entry.request.id)
    gateway.reached(state.now_s, entry.engine)
    state.fleet[entry.engine].began(state.now_s, entry)
    state.meter.add(entry.prefill_s + entry.tpot_s)
    prefill_s = state.now_s - entry.granted_s
    state.reports.first_token(state.now_s, entry, prefill_s)
    if entry.prefill_on:
        state.split_books.answered(state.now_s, entry)
    else:
        state.prior.learn_prefill(entry.request.prompt_tokens, prefill_s - entry.engine_wait_s(prefill_s))
    return _trust(state, state.fleet[entry.engine])


def on_progress(state: WorkerState, gateway: Gateway, message: Progress) -> list[WorkerEffect]:
    effects: list[WorkerEffect] = []
    for request_id, output_tokens in zip(message.request_ids, message.output_tokens, strict=False):
        entry = _running(state, gateway, request_id)
        if entry is None or output_tokens <= entry.output_tokens:
            continue
        _produce(state, entry, output_tokens)
        state.queue.account(entry, entry.received_service, final=False)
        effects += _trust(state, state.fleet[entry.engine])
        if output_tokens > entry.bound_tokens:
            _grow(state, entry)
    return effects


def _trust(state: WorkerState, engine: EngineState) -> list[WorkerEffect]:
    if not engine.life.suspected:
        return []
    engine.trust()
    state.see_engines()
    return [EngineSuspected(engine.name, False)]


def _suspect(state: WorkerState, engine: EngineState, reason: str) -> list[WorkerEffect]:
    """Suspects an engine that left a run without a token. If its own counters stand still too, it is taken to have
    stopped altogether, and gateways are asked to give back its requests that have no token yet."""
    effects: list[WorkerEffect] = [] if engine.life.suspected else [EngineSuspected(engine.name, True, reason)]
    engine.suspect(state.now_s)
    state.see_engines()
    if engine.counts.stands_still:
        text = f"engine {engine.name} has stopped: {reason}"
        for entry in list(engine.running.values()):
            if untouched(entry):
                effects += stop(state, entry, text)
    return effects


def _produce(state: WorkerState, entry: QueueEntry, output_tokens: int) -> None:
    state.meter.add(entry.tpot_s * (output_tokens - entry.output_tokens))
    state.fleet[entry.engine].produced(entry, output_tokens)


def _grow(state: WorkerState, entry: QueueEntry) -> None:
    """Reserves more KV memory for a running request that has outgrown its length bound.

    The engine's forecast peak may then exceed its budget until other requests end.
    """
    engine = state.fleet[entry.engine]
    entry.bound_tokens = state.gate.grown(entry)
    engine.reserve(entry, max(entry.blocks, state.gate.need(engine, entry, entry.bound_tokens)))


def on_declined(state: WorkerState, gateway: Gateway, message: Declined) -> list[WorkerEffect]:
    entry = _running(state, gateway, message.request_id, message.grant)
    if entry is None:
        return []
    ends.forget(state, entry)
    return succeed(state, entry)


def on_ended(state: WorkerState, gateway: Gateway, message: Ended) -> list[WorkerEffect]:
    """Frees the slot of a request. If no token of it was relayed, it may return to the queue."""
    entry = _running(state, gateway, message.request_id, message.grant)
    if entry is None:
        return []
    engine, effects = state.fleet[entry.engine], list[WorkerEffect]()
    if message.at_prefill:
        engine = state.fleet.get(entry.prefill_on, engine)
    if message.outcome is not Outcome.FINISHED and message.retryable and not entry.withdrawn:
        effects += _failed(state, gateway, entry, message, engine)
    else:
        if message.outcome is Outcome.FINISHED:
            gateway.reached(state.now_s, entry.engine)
            effects += _trust(state, engine)
            _finished(state, entry, message)
        else:
            if message.unreached:
                gateway.block(state.now_s, engine.name)
            state.fleet[entry.engine].produced(entry, message.output_tokens)
            ends.conclude(state, entry, message.outcome)
        effects += succeed(state, entry)
    if message.stalled and not engine.life.asleep:
        effects += _suspect(state, engine, message.message)
    return effects


def _finished(state: WorkerState, entry: QueueEntry, message: Ended) -> None:
    if entry.first_token_s is None:  # not streamed: the prefill shows only now
        state.meter.add(entry.prefill_s)
    _produce(state, entry, max(message.output_tokens, entry.output_tokens))
    engine, chain = state.fleet[entry.engine], entry.request.prefix
    if message.cached_tokens is not None and not entry.prefill_on:
        engine.prefix.learn(entry.expected_cached, message.cached_tokens)
    if message.prompt_tokens is not None and chain.nodes:
        engine.prefix.ended(chain, message.prompt_tokens, message.output_tokens, engine.prefix_tokens)
    has_length = entry.output_tokens > 0 and not entry.request.prefill_only  # of the lengths of answers
    if entry.claimed is not None and has_length:
        state.length_bias.learn(entry)
    ends.conclude(state, entry, Outcome.FINISHED)
    if not has_length:
        return
    state.prior.learn_length(entry.request.tenant, entry.request.prompt_tokens, entry.output_tokens)
    state.applications.learn(entry.request, entry.output_tokens)
    if entry.first_token_s is not None and entry.output_tokens > 1:
        state.prior.learn_decode((state.now_s - entry.first_token_s) / (entry.output_tokens - 1))


def _failed(
    state: WorkerState, gateway: Gateway, entry: QueueEntry, message: Ended, engine: EngineState
) -> list[WorkerEffect]:
    """Queues a request again that `engine` lost, had no room for, or that the gateway could not bring there; refuses
    it if no other engine can serve it."""
    if message.unreached:
        gateway.block(state.now_s, engine.name)
    elif message.busy or message.given_up:
        engine.life.held_until_s = state.now_s + state.config.busy_pause_s
    alone = message.given_up and not _another(state, entry, engine, state.awake)  # it may have been put to sleep
    patient = (message.unreached or message.busy or alone) and _patient(state, entry)
    if entry.stopped or state.draining or patient:
        ends.back_to_the_queue(state, entry)
    elif _another(state, entry, engine, state.up):
        entry.tried = (*entry.tried, engine.start_id)
        ends.back_to_the_queue(state, entry)
    else:
        ends.conclude(state, entry, message.outcome)
        return [ends.turn_away(state, entry, message.outcome, message.message)]
    return []


def _patient(state: WorkerState, entry: QueueEntry) -> bool:
    """Returns whether a request that its engine had no room for or gave up, or that could not be brought there, should
    be granted again later. It is, until `no_engine_patience_s` after the first such answer."""
    if entry.busy_since_s is None:
        entry.busy_since_s = state.now_s
    return state.now_s - entry.busy_since_s < state.config.no_engine_patience_s


def _another(state: WorkerState, entry: QueueEntry, failed: EngineState, engines: Iterable[EngineState]) -> bool:
    """Returns whether one of `engines` that is not suspected could take the request and has not failed with it, as
    `failed` has now, or others before."""
    lost = (*entry.tried, failed.start_id)
    hopeful = partnered([e for e in engines if e.start_id not in lost and not e.life.suspected])
    return any(state.gate.could_ever(engine, entry.request.prompt_tokens) for engine in hopeful)


def on_counted(state: WorkerState, event: KvCacheCounted) -> None:
    """Takes over what an engine's own events say of its cache."""
    engine = state.fleet.get(event.engine)
    if engine is not None:
        if event.cleared:
            engine.prefix.clear()
        engine.prefix.counted(event.blocks, event.stored, event.removed)


def on_sampled(state: WorkerState, event: EngineSampled) -> None:
    """Takes a sample of an engine, and frees the slots of lost gateways' requests that it shows to be gone."""
    engine, config = state.fleet.get(event.engine), state.config.gateways
    if engine is None:
        return
    gone = engine.see(state.now_s - event.age_s, event, config.settled_s)
    orphans = list(_orphans(state, engine))
    if not event.counted:
        gone = sum(1 for lost_s, *_ in orphans if state.now_s - lost_s >= config.uncounted_s)
    for *_, entry, computing in sorted(orphans, key=lambda each: each[:2])[:gone]:
        if computing:  # it goes on without a word of ours
            state.split_books.computed(state.now_s, entry)
        else:
            ends.forget(state, entry)


def _orphans(state: WorkerState, engine: EngineState) -> Iterator[tuple[float, int, QueueEntry, bool]]:
    """Yields the requests of lost gateways that the engine should have, with since when it is so, their numbers, and
    whether it only computes their prompts."""
    for held in engine.running.values():
        entry = state.queue.get(held.request.id)
        since_s = engine.books.awaited.get(held.request.id, -inf)
        if entry is not None and entry.orphaned_s is not None and since_s < inf:
            yield max(entry.orphaned_s, since_s), entry.seq, entry, held is not entry


def on_engine_up(state: WorkerState, event: EngineWentUp) -> EngineState:
    """Records a new engine, one that came back (which counts as another start), or news about one that is up."""
    engine = state.fleet.get(event.info.engine)
    if engine is None:
        engine = state.fleet[event.info.engine] = EngineState(event.info, state.config.engine)
    slept = engine.info.sleep_level if engine.life.asleep else None
    engine.describe(replace(event.info, up=not engine.life.leaving, sleep_level=slept))
    engine.budget_blocks = state.gate.budget_blocks(engine)
    if not engine.life.starts:
        for entry in engine.running.values():  # adopted before anything was known of the engine
            engine.reserve(entry, state.gate.need(engine, entry, entry.bound_tokens))
    if not engine.life.starts and event.info.epoch:
        engine.life.held_until_s = state.now_s + state.config.takeover_s
    if not engine.life.answers:
        engine.come_up(state.now_s)
        state.see_engines()
        wake_gateways(state)
    return engine


def wake_gateways(state: WorkerState) -> None:
    """Lets what is parked be tried again, because another engine may take it."""
    for gateway in state.gateways.values():
        if gateway.synced and not gateway.lagging:
            state.wake(gateway)


def on_engine_down(state: WorkerState, event: EngineWentDown) -> list[WorkerEffect]:
    """Marks an engine as down and asks gateways to give back its requests that have no token yet.

    Requests that have tokens are left as they are: the end of their own connection to the engine decides.
    """
    engine = state.fleet.get(event.engine)
    if engine is None or not engine.life.answers:
        return []
    engine.life.go_down()
    engine.info = replace(engine.info, up=False, sleep_level=None)
    state.see_engines()
    reason = f"engine {engine.name} went down before the first token: {event.reason}"
    return [effect for entry in engine.running.values() if untouched(entry) for effect in stop(state, entry, reason)]


def on_engine_left(state: WorkerState, event: EngineLeft) -> None:
    engine = state.fleet.get(event.engine)
    if engine is None:  # it never came up
        engine = state.fleet[event.engine] = EngineState(unknown_engine(event.engine), state.config.engine)
    if not engine.life.leaving:
        engine.life.leave(state.now_s + state.config.leave_grace_s)
        engine.info = replace(engine.info, up=False)
        state.see_engines()


def on_engine_returned(state: WorkerState, name: str) -> None:
    engine = state.fleet.get(name)
    if engine is not None and engine.life.leaving:
        engine.life.come_back()
        engine.info = replace(engine.info, up=engine.life.answers)
        state.see_engines()


def release_left(state: WorkerState) -> list[WorkerEffect]:
    """Releases the engines that have left and run nothing of this worker any more, or whose grace is over. What then
    has no token yet is asked back, to run elsewhere; what has goes on, and is in the books until it ends."""
    effects: list[WorkerEffect] = []
    for engine in [engine for engine in state.fleet.values() if engine.life.leaving]:
        if engine.running and state.now_s < engine.life.leave_by_s:
            continue
        effects.append(ReleaseEngine(engine.name))
        for entry in engine.running.values():
            if untouched(entry):
                effects += stop(state, entry, f"engine {engine.name} has left")
        engine.life.be_released()
        if not engine.running:
            del state.fleet[engine.name]
    return effects


def unknown_engine(engine: str) -> EngineInfo:
    """Returns what is known of an engine that has not come up since this worker started: its name."""
    return EngineInfo(
        engine=engine,
        up=False,
        dialect="",
        hardware="",
        max_model_len=0,
        kv_capacity_tokens=0,
        block_size=0,
        max_num_seqs=0,
    )


def stop(state: WorkerState, entry: QueueEntry, reason: str) -> list[WorkerEffect]:
    """Asks the gateway to give a granted request back; its slot stays taken until the gateway has answered. Nothing is
    asked of one that the gateway placed by itself. What stands for a request where its prompt is computed is asked
    back as the request itself."""
    entry = state.queue.get(entry.request.id) or entry
    if entry.stopped or not entry.grant or entry.gateway not in state.gateways:
        return []
    entry.stopped = True
    return [ToGateway(entry.gateway, Stop(entry.request.id, entry.grant, reason))]

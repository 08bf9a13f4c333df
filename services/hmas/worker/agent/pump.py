"""The pump: grants the head of each lane, and only the head, on its least loaded engine with room (H-MAS §3.5), or on
one that holds the beginning of its prompt."""

from math import inf

from hmas.contracts.execution import Grant, Timeline
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import ToGateway, WorkerEffect
from hmas.laws.layout import bounds_ms, pace_class
from hmas.worker.agent import ends
from hmas.worker.agent.eligible import may_take
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.gateways import Gateway
from hmas.worker.agent.refusal import refuse_hopeless
from hmas.worker.agent.split.pair_choice import EnginePair, choose_pair
from hmas.worker.agent.split.rules import partnered
from hmas.worker.agent.state import WorkerState

SUSPECTED_S = 1e9  # more than any request costs
TRUSTED = 0.5  # of an engine where less than this of what was expected is there, gateways are told of nothing


def pump(state: WorkerState) -> list[WorkerEffect]:
    """Grants the head of each lane again and again, while it fits an engine of that lane. The strictest lane is first.

    At most `max_grants_per_pump` are granted; the next event or cycle goes on. A head that does not fit waits,
    and with it all requests behind it, because the topology alone decides which is next. It does not block the others
    for what lies with its gateway: it is parked if that could not carry out a grant now, or if only engines that are
    asleep could take it, and ended if no engine that is up can ever take it, or if its tenant prefers a refusal and it
    cannot be on time.
    """
    effects: list[WorkerEffect] = []
    left, parks = state.config.max_grants_per_pump, state.config.max_parks_per_pump
    for lane in state.lanes:
        lane_effects, parked = _pump_lane(state, lane, left, parks)
        effects += lane_effects
        left -= len(lane_effects)
        parks -= parked
        if not (left and parks):
            break
    return effects


def _pump_lane(state: WorkerState, lane: int, left: int, parks: int) -> tuple[list[WorkerEffect], int]:
    """Grants from one lane, at most `left` times, and parks at most `parks` requests. Returns the effects, one for each
    grant or end, and how many requests it parked."""
    queue = state.queue
    effects: list[WorkerEffect] = []
    fenced = not state.controls.bypass
    parked = 0
    roomy = [engine for engine in state.lanes[lane] if engine.open]
    if roomy and queue.paced and (queue.waiting > 1 or not queue.sets_aside):  # of one, there is nothing to set aside
        queue.observe(state.service_view(lane), lane)
    waits = False
    while len(effects) < left and parked < parks and state.awake and (entry := queue.peek(lane)) is not None:
        refusal = refuse_hopeless(state, entry)
        if refusal is not None:
            effects.append(refusal)
            continue
        gateway = state.gateways[entry.gateway]
        willing = state.grantable(gateway)
        state.memory_waits.ask()
        pair = _find(state, gateway, entry, _in_pace(state, lane, entry, roomy), fenced) if willing else None
        if pair is None and willing and len(state.lanes) > 1:
            pair = _find(state, gateway, entry, _beyond(state, lane, gateway, entry), fenced)
        if pair is not None:
            effects.append(grant(state, pair, lane))
            roomy = [engine for engine in roomy if engine.open]
        elif willing and any(_could_bring(state, gateway, e, entry) for e in _left(entry, state.awake)):
            waits = True
            break
        elif any(_could_take(state, e, entry) for e in _left(entry, state.up)):
            state.park(entry)
            state.sleep_waits.note(state.now_s, entry)
            parked += 1
        else:
            effects.append(end_unservable(state, entry))
    state.memory_waits.note(state.now_s, lane, waits=waits)
    return effects, parked


def _find(
    state: WorkerState, gateway: Gateway, entry: QueueEntry, roomy: list[EngineState], fenced: bool
) -> EnginePair | None:
    if state.splits:
        return choose_pair(state, gateway, entry, roomy, fenced)
    engine = choose(state, gateway, entry, roomy, fenced)
    return None if engine is None else EnginePair(engine)


def _in_pace(state: WorkerState, lane: int, entry: QueueEntry, roomy: list[EngineState]) -> list[EngineState]:
    """Returns those of the lane's `roomy` engines whose steps keep the request's SLO now, which are none if the quick
    ones have no room. All of `roomy`, if no engine of the lane that can take the request is quick, or if it is late
    anyway, or generates nothing."""
    now_s, most_s = state.now_s, entry.needed_tpot_s
    if all(engine.counts.step_now_s(now_s) <= most_s for engine in roomy):
        return roomy
    late = entry.relegated or now_s > entry.ttft_deadline_s
    if late or entry.request.prefill_only:
        return roomy
    gateway, uncounted_s = state.gateways[entry.gateway], state.config.gateways.uncounted_s
    quick = [
        engine
        for engine in state.lanes[lane]
        if not engine.life.suspected
        and engine.counts.step_now_s(now_s) <= most_s
        and engine.ready(now_s, uncounted_s)
        and _could_bring(state, gateway, engine, entry)
    ]
    return [engine for engine in roomy if engine in quick] if quick else roomy


def _beyond(state: WorkerState, lane: int, gateway: Gateway, entry: QueueEntry) -> list[EngineState]:
    """Returns the engines of other lanes that may take the head of a lane which has no room.

    These are engines of stricter lanes that have slack left beside their own requests. If no engine of its own lane can
    ever take it, or its gateway reaches none of them, every engine with room may.
    """
    if not any(_could_bring(state, gateway, engine, entry) for engine in state.lanes[lane]):
        return [engine for engine in state.awake if engine.open]
    if entry.relegated:
        return []  # there is no end of these under overload
    stricter = [other for other in state.lanes if other < lane and not state.queue.waiting_in(other)]
    return [engine for other in stricter for engine in state.lanes[other] if _has_slack(state, other, engine)]


def _has_slack(state: WorkerState, lane: int, engine: EngineState) -> bool:
    """Returns whether an engine may help out a laxer lane: no prompt is pending there, and its steps take at most the
    share `spill_share` of its class's TPOT SLO."""
    sample = engine.counts.sample
    if not engine.open or engine.prefill or sample is None or not engine.counts.measured(state.now_s):
        return False
    return sample.step_s <= state.config.spill_share * state.layout.cuts_s[lane]


def _left(entry: QueueEntry, engines: list[EngineState]) -> list[EngineState]:
    """Returns those of `engines` that have not lost the request, without those whose partners all have."""
    if not entry.tried:
        return engines
    return partnered([engine for engine in engines if engine.start_id not in entry.tried])


def _could_take(state: WorkerState, engine: EngineState, entry: QueueEntry) -> bool:
    """Returns whether an engine that is up can take the request, now or later."""
    return engine.start_id not in entry.tried and state.gate.could_ever(engine, entry.request.prompt_tokens)


def _could_bring(state: WorkerState, gateway: Gateway, engine: EngineState, entry: QueueEntry) -> bool:
    """Returns whether the request's gateway, as far as is known, reaches an engine that could take it."""
    return _could_take(state, engine, entry) and not gateway.blocked(state.now_s, engine.name)


def choose(
    state: WorkerState, gateway: Gateway, entry: QueueEntry, roomy: list[EngineState], fenced: bool
) -> EngineState | None:
    """Returns the engine to grant `entry` on, or None.

    It is the least loaded engine. Where one of them holds the beginning of the prompt, it is the one where the request
    costs the fewest seconds. `roomy` are the engines that are open. If one is found, the reservation is written
    into `entry`. `fenced`: whether memory and pending prefill limit the grant (not so under the emergency bypass).
    """
    gate, differs = state.gate, entry.differs
    fixed_s = state.config.prefill_window_s
    reserved = gate.reserved(entry)
    prefill_s = state.prefill_s(entry, roomy[0]) if roomy else 0.0
    held = _held(entry, roomy)
    best: EngineState | None = None
    best_load, best_blocks = inf, 0
    for engine in roomy:
        if not may_take(state, gateway, entry, engine) or not engine.step_room.has_time_for(entry):
            continue
        suspected = engine.life.suspected
        load = engine.counts.in_flight / engine.cap + suspected  # one of these comes last: others have a load below 1
        if held:
            load = _seconds(engine, entry, held[engine.name], load) + SUSPECTED_S * suspected
        if load >= best_load:
            continue  # before the gates, because a forecast of memory costs far more than the rest
        blocks = gate.need(engine, entry, reserved)
        if fenced and engine.prefill:
            if differs:
                prefill_s = state.prefill_s(entry, engine)
            window_s = engine.window.seconds(state.now_s, engine.running.values()) if fixed_s is None else fixed_s
            if not engine.prefill.admits(prefill_s, window_s + state.lag_s):  # news of prefill may be late by the lag
                continue
        if fenced and not gate.admits(state.now_s, engine, entry, blocks):
            state.memory_waits.refuse()
            continue
        best, best_load, best_blocks = engine, load, blocks
    if best is not None:
        entry.admit(gate.upper(entry), reserved, best_blocks)
    return best


def _held(entry: QueueEntry, engines: list[EngineState]) -> dict[str, float]:
    """Returns the tokens of the prompt that each engine probably holds; empty if none holds any, or if there is no
    choice."""
    chain = entry.request.prefix
    if not chain.nodes or len(engines) < 2:
        return {}
    held = {engine.name: engine.prefix.held(chain) * engine.prefix.trust for engine in engines}
    return held if any(held.values()) else {}


def _seconds(engine: EngineState, entry: QueueEntry, held: float, load: float) -> float:
    """Returns what the request costs on the engine, in s: the prompts before it, the part of its own that is not held
    there, and its share of slower steps, since a full batch takes up to about twice as long a step as an empty one."""
    left = 1.0 - min(1.0, held / max(1, entry.request.prompt_tokens))
    waits_s = engine.prefill.seconds / max(1.0, engine.prefill.pace)
    cost = entry.cost(engine.info)
    return waits_s + cost.ttft_s * left + load * cost.tpot_s * entry.predicted_tokens


def grant(state: WorkerState, pair: EnginePair, lane: int) -> ToGateway:
    """Takes the head out of a lane and grants it on `pair`."""
    queue, engine, prefill = state.queue, pair.engine, pair.prefill or pair.engine
    entry = queue.take(lane)
    state.grants += 1
    state.sleep_waits.end(state.now_s, entry)
    entry.grant = state.grants
    entry.engine = engine.name
    entry.topology = queue.topology.value
    entry.granted_s = state.now_s
    if entry.claimed is not None:
        state.length_bias.began(entry)
    entry.run_on(engine.info)
    chain, prefill_s = entry.request.prefix, state.prefill_s(entry, prefill)
    engine.occupy(state.now_s, entry, prefill_s if pair.prefill is None else None)
    if chain.nodes:
        growth = sum([each.written_tokens for each in prefill.running.values()])
        entry.expected_cached = prefill.prefix.expect(chain, prefill.prefix_tokens, growth)
        prefill.prefix.hold(chain, prefill.prefix_tokens)
    if pair.prefill is not None:
        engine.prefix.hold(chain, engine.prefix_tokens)
        state.split_books.begin(state.now_s, entry, engine, prefill, pair.prompt_blocks, prefill_s)
    state.gateways[entry.gateway].unstarted[entry.request.id] = entry
    state.reports.granted(state.now_s, entry)
    timeline = Timeline(
        engine=engine.name,
        topology=entry.topology,
        queued_s=state.now_s - entry.enqueued_s,
        queue_length=entry.queue_length,
        overtaken=entry.overtaken,
        switches=queue.switches - entry.switches_before,
        upper_output_tokens=entry.upper_output_tokens,
        relegated=entry.relegated,
        promised_tokens=entry.expected_cached.tokens if prefill.prefix.trust >= TRUSTED else 0,
        pace_class=bounds_ms(state.layout.cuts_s, pace_class(state.layout.cuts_s, entry.needed_tpot_s)),
        asleep_s=entry.asleep_s,
        memory_s=state.memory_waits.waited_s(state.now_s, lane, entry.memory_before, entry.enqueued_s),
    )
    message = Grant(
        request_id=entry.request.id,
        attempt=entry.attempt,
        grant=entry.grant,
        engine=engine.name,
        urgency=entry.urgency,
        pace_s=entry.pace_s,
        timeline=timeline,
        prefill=entry.prefill_on,
        choice=pair.choice,
        bootstrap_port=prefill.info.bootstrap_port if pair.prefill is not None else 0,
    )
    return ToGateway(entry.gateway, message)


def end_unservable(state: WorkerState, entry: QueueEntry) -> ToGateway:
    """Ends a queued request that no engine that is up can take, now or later."""
    prompt_tokens = entry.request.prompt_tokens
    if entry.tried:
        lost = ", ".join(entry.tried)
        return ends.refuse(state, entry, Outcome.ENGINE_ERROR, f"failed on {lost}; no other engine can take it")
    if any(state.gate.could_ever(engine, prompt_tokens) for engine in state.fleet.values()):
        message = f"all engines that could hold {prompt_tokens} prompt tokens are down: retry later"
        return ends.refuse(state, entry, Outcome.NO_ENGINE, message)
    message = state.gate.explain_never(list(state.fleet.values()), prompt_tokens)
    return ends.refuse(state, entry, Outcome.NEVER_FITS, message)

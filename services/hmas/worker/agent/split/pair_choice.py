"""Which engine computes a prompt and which one answers: the pair, of one engine or of two, by which the fewest requests
are expected to be late.

Three things make requests late. The request itself is, if its first token comes too late, or its tokens too slowly.
Those are that decode where its prompt is computed. And those are whose steps its own tokens lengthen. Of pairs that are
about equal, prompts take the engines at one end of a line and answers those at the other, so that engines keep to one
of both as far as the load allows; roles say where in that line an engine stands, and bind nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from hmas.contracts.pair_forecast import PairDecision, PairForecast, PairReason
from hmas.worker.agent.eligible import may_take
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.gateways import Gateway
from hmas.worker.agent.split.rules import ANY, in_line, rule_for
from hmas.worker.agent.split.slack import harm, odds_late, slacks
from hmas.worker.agent.state import WorkerState

SUSPECTED = 1000.0  # requests: a suspected engine comes last
MOST_TOLD = 1e9  # of a value in a forecast, so that no grant is lost on its way for what it tells


@dataclass(frozen=True, slots=True)
class EnginePair:
    """`engine` answers, and `prefill` computes the prompt, for which it books `prompt_blocks`; None if the same one
    does both. `choice`: what was expected of it."""

    engine: EngineState
    prefill: EngineState | None = None
    prompt_blocks: int = 0
    choice: PairDecision | None = None


@dataclass(frozen=True, slots=True)
class _Prefill:
    """An engine that could compute the prompt, which lacks `tokens` of it and has `blocks` KV blocks for it: the first
    token is there in `first_s`, and `harmed` requests more are expected to be late by it."""

    engine: EngineState
    blocks: int
    tokens: float
    first_s: float
    harmed: float


@dataclass(frozen=True, slots=True)
class _Answer:
    """An engine that could answer, which has `blocks` KV blocks for it: its steps then take `step_s`, by which `harmed`
    requests more are expected to be late, and the whole answer `decode_s`."""

    engine: EngineState
    blocks: int
    step_s: float
    harmed: float
    decode_s: float

    def odds_slow(self, entry: QueueEntry, waits_s: float, error: float) -> float:
        """Returns how probable it is that the answer is too slow, if others' prompts delay it by `waits_s`."""
        if entry.request.prefill_only:
            return 0.0
        tokens, most_s = max(1.0, entry.predicted_tokens), entry.needed_tpot_s
        return odds_late((self.step_s - most_s) * tokens + waits_s, error * most_s * tokens)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A pair that may serve a request. Of two, the one with the lower `cost` is better."""

    answer: _Answer
    prefill: _Prefill
    first_s: float
    late: float
    cost: tuple[int, int, float]

    @property
    def whole(self) -> bool:
        return self.prefill.engine is self.answer.engine

    @property
    def suspected(self) -> int:
        return self.prefill.engine.life.suspected + self.answer.engine.life.suspected

    @property
    def forecast(self) -> PairForecast:
        return PairForecast(
            engine=self.answer.engine.name,
            prefill="" if self.whole else self.prefill.engine.name,
            first_s=_bounded(self.first_s),
            late=_bounded(self.late - SUSPECTED * self.suspected),
            step_s=_bounded(self.answer.step_s),
        )


def _bounded(value: float) -> float:
    return min(max(0.0, value), MOST_TOLD)


def choose_pair(
    state: WorkerState, gateway: Gateway, entry: QueueEntry, roomy: Sequence[EngineState], fenced: bool
) -> EnginePair | None:
    """Returns the pair to grant `entry` on, with the reservation written into `entry`, or None: there is none, or it
    would make others late and the first token can wait. `roomy` are the engines that may answer; any that is awake may
    compute the prompt. `fenced` as in `choose`."""
    config = state.config.split
    answers = list(_answers(state, gateway, entry, roomy, fenced))
    prefills = list(_prefills(state, gateway, entry, fenced)) if answers else []
    if not prefills:
        return None
    usable = (each for each in state.awake if not each.life.suspected and each.start_id not in entry.tried)
    rule = rule_for(config, min(each.tokens for each in prefills), usable)
    place, best = in_line(state.up), dict[tuple[bool, bool], _Candidate]()  # by whether it is allowed, and whole
    due_s = inf if entry.relegated or state.now_s > entry.ttft_deadline_s else entry.ttft_deadline_s - state.now_s
    for answer in answers:
        for prefill in prefills:
            whole = prefill.engine is answer.engine
            if not ANY.allows(prefill.engine.info, answer.engine.info, whole=whole):
                continue
            kind = rule.allows(prefill.engine.info, answer.engine.info, whole=whole), whole
            first_s = prefill.first_s + (0.0 if whole else state.split_books.read_s(entry))
            late = prefill.harmed + answer.harmed
            if due_s < inf:
                waits_s = 0.0 if whole else answer.engine.prefill.seconds
                late += odds_late(first_s - due_s, config.error * first_s)
                late += answer.odds_slow(entry, waits_s, config.error)
            apart = place[prefill.engine.name] - place[answer.engine.name]
            cost = round(late / config.grain), apart, first_s + answer.decode_s
            if kind not in best or cost < best[kind].cost:
                best[kind] = _Candidate(answer, prefill, first_s, late, cost)
    allowed = [best[True, whole] for whole in (True, False) if (True, whole) in best]
    if not allowed:
        return None
    taken = min(allowed, key=lambda each: each.cost)
    answer, prefill = taken.answer, taken.prefill
    if prefill.harmed > config.harmless and config.spare_s < due_s - prefill.first_s < inf:
        return None
    entry.admit(state.gate.upper(entry), state.gate.reserved(entry), answer.blocks)
    choice = _decision(taken, best.get((True, not taken.whole)), best.get((False, not taken.whole)))
    if taken.whole:
        return EnginePair(answer.engine, choice=choice)
    return EnginePair(answer.engine, prefill.engine, prefill.blocks, choice)


def _decision(taken: _Candidate, other: _Candidate | None, forbidden: _Candidate | None) -> PairDecision:
    """Returns what is told of a choice: beside the pair that was taken the best of the other kind, or the best that the
    rule forbids. Pairs with suspected engines are no alternative to one without."""
    compared = other or forbidden
    if compared is None or compared.suspected > taken.suspected:
        return PairDecision(taken=taken.forecast, other=None, reason=PairReason.NO_OTHER)
    fewer = PairReason.FEWER_LATE if taken.cost[0] < compared.cost[0] else PairReason.EVEN
    return PairDecision(
        taken=taken.forecast, other=compared.forecast, reason=PairReason.RULE if other is None else fewer
    )


def _answers(
    state: WorkerState, gateway: Gateway, entry: QueueEntry, roomy: Iterable[EngineState], fenced: bool
) -> Iterator[_Answer]:
    reserved, error = state.gate.reserved(entry), state.config.split.error
    for engine in roomy:
        if not may_take(state, gateway, entry, engine) or not engine.step_room.has_time_for(entry):
            continue
        blocks = state.gate.need(engine, entry, reserved)
        if fenced and not state.gate.admits(state.now_s, engine, entry, blocks):
            state.memory_waits.refuse()
            continue
        step, step_s = engine.step_room.step, engine.counts.step_now_s(state.now_s)
        harmed = SUSPECTED * engine.life.suspected
        if step is not None:
            more_s = step.sequence_s + step.context_s * entry.mean_context
            harmed += harm(slacks(engine, state.now_s, error), step_s=more_s)
            step_s = max(step_s, step.base_s + engine.step_room.used_s + more_s)
        load = engine.counts.in_flight / engine.cap
        alone_s = entry.cost(engine.info).tpot_s
        yield _Answer(engine, blocks, step_s, harmed, max(step_s, alone_s * (1.0 + load)) * entry.predicted_tokens)


def _prefills(state: WorkerState, gateway: Gateway, entry: QueueEntry, fenced: bool) -> Iterator[_Prefill]:
    chain, error, prompt_tokens = entry.request.prefix, state.config.split.error, entry.request.prompt_tokens
    for engine in state.awake:
        if engine.counts.in_flight >= engine.cap or not may_take(state, gateway, entry, engine):
            continue
        held = engine.prefix.held(chain) * engine.prefix.trust if chain.nodes else 0.0
        left = 1.0 - min(1.0, held / max(1, prompt_tokens))
        own_s = state.prefill_s(entry, engine) * left
        if fenced and not _admits(state, engine, own_s):
            continue
        blocks = state.gate.need(engine, entry, 1.0)
        if fenced and not state.gate.admits(state.now_s, engine, entry, blocks):
            state.memory_waits.refuse()
            continue
        pending = engine.prefill
        first_s = pending.seconds / max(1.0, pending.pace) + entry.cost(engine.info).ttft_s * left
        harmed = harm(slacks(engine, state.now_s, error), prompt_s=own_s) + SUSPECTED * engine.life.suspected
        yield _Prefill(engine, blocks, left * prompt_tokens, first_s, harmed)


def _admits(state: WorkerState, engine: EngineState, own_s: float) -> bool:
    """Returns whether a prompt of `own_s` seconds may join those that are pending on an engine."""
    if not engine.prefill:
        return True
    window_s = state.config.prefill_window_s
    if window_s is None:
        window_s = engine.window.seconds(state.now_s, engine.running.values())
    return engine.prefill.admits(own_s, window_s + state.lag_s)

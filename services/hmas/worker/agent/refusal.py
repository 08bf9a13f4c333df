"""Refuses requests that would be late, for tenants that prefer a refusal to a late answer (`on_miss: refuse`)."""

from itertools import islice
from math import ceil

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.contracts.worker import ToGateway, WorkerEffect
from hmas.worker.agent import ends
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.state import WorkerState


def refuse_late(state: WorkerState) -> list[WorkerEffect]:
    """Refuses queued requests of such tenants that the topology has relegated, or that can no longer be on time
    (`refuse_hopeless`).

    Without an engine nothing is refused here.
    """
    effects: list[WorkerEffect] = []
    if not state.up:
        return effects  # without an engine nothing can be predicted; patience decides
    unwilling = state.queue.unwilling
    for entry in list(islice(unwilling.values(), state.config.refusal.most_per_cycle)):
        unwilling[entry.request.id] = unwilling.pop(entry.request.id)  # to the end: the next cycle looks at others
        refusal = refuse_hopeless(state, entry)
        if refusal is not None:
            effects.append(refusal)
        elif _is_known(state, entry) and entry.relegated:
            effects.append(ends.refuse(state, entry, Outcome.SLO_UNREACHABLE, explanation(state, entry)))
    return effects


def refuse_hopeless(state: WorkerState, entry: QueueEntry) -> ToGateway | None:
    """Refuses a queued request of such a tenant that would be late even if it began now, ran alone on the quickest
    engine that is up, and were as short as the lower end of its predicted length: its first token, or, where that
    counts, its last one. Returns None if it may be on time. If no wait is to blame, the client is told that trying
    again does not help."""
    if entry.request.relegate or not _is_known(state, entry):
        return None
    engines = [engine for engine in state.up if state.gate.could_ever(engine, entry.request.prompt_tokens)]
    if not engines:
        return None
    slo, gone_s = entry.slo, state.now_s - entry.request.arrival_s
    if not slo.whole:
        first_s = min(_least_prefill_s(engine, entry) for engine in engines)
        if gone_s + first_s > slo.ttft_s:
            return _refuse(state, entry, "first", first_s, slo.ttft_s)
        if slo.ttlt_s is None:
            return None
    # A longer answer is due later, where no TTLT is stated: it is late at all lengths if it is at both ends.
    ends_tokens = (entry.least_tokens,) if slo.ttlt_s is not None else (entry.least_tokens, entry.predicted_p90)
    last_s, due_s = min(
        ((min(_least_s(engine, entry, tokens) for engine in engines), _due_s(slo, tokens)) for tokens in ends_tokens),
        key=lambda last: last[0] - last[1],
    )
    return _refuse(state, entry, "last", last_s, due_s) if gone_s + last_s > due_s else None


def _refuse(state: WorkerState, entry: QueueEntry, token: str, service_s: float, due_s: float) -> ToGateway:
    """`service_s`: the least seconds from grant to that token; `due_s`: when it is due, in s from the arrival."""
    least_s, ever = _hundredths(state.now_s - entry.request.arrival_s + service_s), service_s > due_s
    bound, shorter = ("TTFT", "send a shorter prompt") if token == "first" else ("TTLT", "for a shorter answer")
    advice = f"Ask for a longer {bound}."
    if ever:
        advice = f"Ask for a {bound} of at least {_hundredths(service_s):.2f} s, or {shorter}."
    message = (
        f"the answer would be late: its {token} token would come {least_s:.2f} s after the request's arrival at the "
        f"earliest, and is due after {round(due_s, 3):g} s. {advice}"
    )
    return ends.refuse(state, entry, Outcome.SLO_UNREACHABLE, message, ever=ever)


def _due_s(slo: Slo, tokens: float) -> float:
    """Returns when the last token of an answer of so many is due, in s from the request's arrival."""
    return slo.ttft_s + slo.tpot_s * tokens if slo.ttlt_s is None else slo.ttlt_s


def _least_prefill_s(engine: EngineState, entry: QueueEntry) -> float:
    """Returns the least seconds from grant to first token on an engine: what it probably holds of the prompt is not
    computed, and the rest as quickly as it was measured to be where that is quicker than predicted."""
    chain, tokens = entry.request.prefix, max(1, entry.request.prompt_tokens)
    held = engine.prefix.held(chain) if chain.nodes else 0.0
    return entry.cost(engine.info).ttft_s * max(0.0, 1.0 - held / tokens) / max(1.0, engine.prefill.pace)


def _least_s(engine: EngineState, entry: QueueEntry, output_tokens: float) -> float:
    """Returns the least seconds from grant to last token on an engine: a step takes no longer than without other
    requests, as far as that is known."""
    tpot_s = entry.cost(engine.info).tpot_s
    step_s = min(tpot_s, engine.step_room.least_s(max(1, entry.request.prompt_tokens)) or tpot_s)
    return _least_prefill_s(engine, entry) + step_s * max(0.0, output_tokens - 1.0)


def _is_known(state: WorkerState, entry: QueueEntry) -> bool:
    """Whether its estimates are more than a guess, or tags do not come."""
    return entry.annotation is not None or state.now_s - entry.enqueued_s >= state.config.refusal.tags_within_s


def explanation(state: WorkerState, entry: QueueEntry) -> str:
    """Returns the message for the client: when the token that is judged would have come, and when it is due.

    The former is predicted as the wait so far, the time to serve the queue, and the request's own prefill, or all of
    its service if only the last token is judged.
    """
    token, own_s, due_s = "first", entry.prefill_s, entry.ttft_deadline_s
    if entry.slo.whole:
        token, own_s, due_s = "last", entry.total_s, entry.deadline_s
    arrival_s = entry.request.arrival_s
    at_s = state.now_s - arrival_s + state.queue_wait_s() + own_s
    return (
        f"the answer would be late: its {token} token would come about {at_s:.1f} s after the request's arrival and is "
        f"due after {due_s - arrival_s:.1f} s. Ask for looser SLOs."
    )


def _hundredths(seconds: float) -> float:
    """Returns a time in s, rounded up to hundredths, so that it is not told as one that would do."""
    return ceil(round(100.0 * seconds, 6)) / 100.0

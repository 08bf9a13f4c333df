"""Refuses requests that would be late, for tenants that prefer a refusal to a late answer (`on_miss: refuse`)."""

from itertools import islice
from math import ceil, inf

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import ToGateway, WorkerEffect
from hmas.worker.agent import ends
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.state import WorkerState


def refuse_late(state: WorkerState) -> list[WorkerEffect]:
    """Refuses queued requests of such tenants that the topology has relegated, that cannot start in time any more, or
    whose stated TTLT cannot be kept.

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
        elif _is_known(state, entry) and (entry.relegated or _starts_late(state, entry)):
            effects.append(ends.refuse(state, entry, Outcome.SLO_UNREACHABLE, explanation(state, entry)))
    return effects


def refuse_hopeless(state: WorkerState, entry: QueueEntry) -> ToGateway | None:
    """Refuses a queued request of such a tenant that would miss its stated TTLT even if it began now, ran alone on the
    quickest engine that is up, and were as short as the lower end of its predicted length. Returns None if it may keep
    it, or states none. If no wait is to blame, the client is told that trying again does not help."""
    ttlt_s = entry.slo.ttlt_s
    if entry.request.relegate or ttlt_s is None or not _is_known(state, entry):
        return None
    prompt_tokens = entry.request.prompt_tokens
    engines = [engine for engine in state.up if state.gate.could_ever(engine, prompt_tokens)]
    service_s = min((_least_s(engine, entry) for engine in engines), default=-inf)
    if state.now_s + service_s <= entry.deadline_s:
        return None
    least_s = _hundredths(state.now_s - entry.request.arrival_s + service_s)
    if service_s <= ttlt_s:
        advice = "Retry later, or ask for a longer TTLT."
    else:
        advice = f"Ask for a TTLT of at least {_hundredths(service_s):.2f} s, or for a shorter answer."
    message = (
        f"the answer would be late: its last token would come {least_s:.2f} s after the request's arrival at the "
        f"earliest, and is due after {ttlt_s:g} s. {advice}"
    )
    return ends.refuse(state, entry, Outcome.SLO_UNREACHABLE, message, ever=service_s > ttlt_s)


def _least_s(engine: EngineState, entry: QueueEntry) -> float:
    """Returns the least seconds from grant to last token on an engine: what it probably holds of the prompt is not
    computed, and a step takes no longer than without other requests, as far as that is known."""
    cost = entry.cost(engine.info)
    chain, tokens = entry.request.prefix, max(1, entry.request.prompt_tokens)
    held = engine.prefix.held(chain) if chain.nodes else 0.0
    step_s = min(cost.tpot_s, engine.step_room.least_s(tokens) or cost.tpot_s)
    return cost.ttft_s * max(0.0, 1.0 - held / tokens) + step_s * max(0.0, entry.least_tokens - 1.0)


def _is_known(state: WorkerState, entry: QueueEntry) -> bool:
    """Whether its estimates are more than a guess, or tags do not come."""
    return entry.annotation is not None or state.now_s - entry.enqueued_s >= state.config.refusal.tags_within_s


def _starts_late(state: WorkerState, entry: QueueEntry) -> bool:
    """Whether it cannot start in time by its predicted length. One with a stated TTLT that alone counts goes by the
    lower end of that (`refuse_hopeless`)."""
    if entry.slo.whole and entry.slo.ttlt_s is not None:
        return False
    return state.now_s > entry.ttft_deadline_s - entry.prefill_s


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
        f"due after {due_s - arrival_s:.1f} s. Retry later, or ask for looser SLOs."
    )


def _hundredths(seconds: float) -> float:
    """Returns a time in s, rounded up to hundredths, so that it is not told as one that would do."""
    return ceil(round(100.0 * seconds, 6)) / 100.0

"""Refuses requests that would be late, for tenants that prefer a refusal to a late answer (`on_miss: refuse`)."""

from itertools import islice

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import WorkerEffect
from hmas.worker.agent import ends
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.state import AgentState


def refuse_late(state: AgentState) -> list[WorkerEffect]:
    """Refuses queued requests of such tenants that the topology has relegated or that cannot start in time any more.

    Without an engine nothing is refused here.
    """
    effects: list[WorkerEffect] = []
    if not state.up:
        return effects  # without an engine nothing can be predicted; patience decides
    config = state.config.refusal
    for entry in list(islice(state.queue.unwilling.values(), config.most_per_cycle)):
        if entry.annotation is None and state.now_s - entry.enqueued_s < config.tags_within_s:
            continue
        if entry.relegated or state.now_s > entry.ttft_deadline_s - entry.prefill_s:
            effects.append(ends.refuse(state, entry, Outcome.SLO_UNREACHABLE, explanation(state, entry)))
    return effects


def explanation(state: AgentState, entry: QueueEntry) -> str:
    """Returns the message for the client: when the first token would have come, and when it is due.

    The former is predicted as the wait so far, the time to serve the queue, and the request's own prefill.
    """
    ttft_s = state.now_s - entry.request.arrival_s + state.queue_wait_s() + entry.prefill_s
    due_s = entry.ttft_deadline_s - entry.request.arrival_s
    return (
        f"the answer would be late: its first token would come about {ttft_s:.1f} s after the request's arrival and is "
        f"due after {due_s:.1f} s. Retry later, or ask for looser SLOs."
    )

"""A refusal instead of a late answer, for tenants that prefer it (`on_miss: refuse`)."""

from itertools import islice

from hmas.contracts.outcome import Outcome
from hmas.worker.agent.core import WorkerCore
from hmas.worker.agent.entry import QueueEntry

MOST_PER_CYCLE = 100  # looked at, longest queued first
TAGS_WITHIN_S = 0.5  # before them, what is known of a request is a guess, and no reason to refuse it


def refuse_late(core: WorkerCore) -> None:
    """Ends those that the topology has relegated, or that cannot start in time any more."""
    if not core.up:
        return  # without an engine nothing can be predicted; patience decides
    for entry in list(islice(core.pool.unwilling.values(), MOST_PER_CYCLE)):
        if entry.annotation is None and core.now_s - entry.enqueued_s < TAGS_WITHIN_S:
            continue
        if entry.relegated or core.now_s > entry.ttft_deadline_s - entry.prefill_s:
            core.reject(entry, Outcome.SLO_UNREACHABLE, explanation(core, entry))


def explanation(core: WorkerCore, entry: QueueEntry) -> str:
    """What it would have come to: the wait so far, the queue's, and its own prefill."""
    ttft_s = core.now_s - entry.request.arrival_s + core.queue_wait_s() + entry.prefill_s
    due_s = entry.ttft_deadline_s - entry.request.arrival_s
    return f"the first token would come about {ttft_s:.1f} s after the request, it is due after {due_s:.1f} s"

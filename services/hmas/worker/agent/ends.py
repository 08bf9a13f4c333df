"""The ways in which a request leaves the worker.

Each function takes the request out of the queue and off its engine, and returns the effect that tells its gateway.
"""

from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.contracts.worker import Abort, Conclude, Handback, Reject, Timeline, WorkerEffect
from hmas.worker.agent.entry import EntryState, QueueEntry
from hmas.worker.agent.state import AgentState


def refuse(
    state: AgentState, entry: QueueEntry, outcome: Outcome, message: str, promise_s: float | None = None
) -> Reject:
    """Refuses a request that is not in the queue and was never dispatched.

    `promise_s`: seconds after which the client is told to try again; None: after the wait that the queue has now. No
    wait is told where the outcome is one that trying again does not change.
    """
    state.remember_end(entry.request.id, entry.attempt)
    wait_s = state.queue_wait_s() if promise_s is None else promise_s
    retry_s = state.meter.retry_after_s(wait_s) if OUTCOME_TABLE[outcome].retry_helps else None
    return Reject(
        request_id=entry.request.id,
        attempt=entry.attempt,
        gateway=entry.gateway,
        outcome=outcome,
        message=message,
        retry_after_s=retry_s,
    )


def reject(state: AgentState, entry: QueueEntry, outcome: Outcome, message: str) -> Reject | Conclude:
    """Ends a queued request that cannot be served by this worker: as a refusal if it was never dispatched, otherwise
    as a failure."""
    if entry.tried:
        return conclude(state, entry, outcome, message)
    promise_s = state.queue.promise_s(entry) if outcome is Outcome.SLO_UNREACHABLE else None
    _leave(state, entry, outcome)
    return refuse(state, entry, outcome, message, promise_s)


def hand_back(state: AgentState, entry: QueueEntry) -> Handback:
    """Takes a request out of the queue and returns it to its gateway, which may route it elsewhere."""
    state.queue.remove(entry)
    state.remember_end(entry.request.id, entry.attempt)
    return Handback(entry.request.id, entry.attempt, entry.gateway)


def drop(state: AgentState, entry: QueueEntry, outcome: Outcome, message: str) -> list[WorkerEffect]:
    """Ends a request, queued or running; a running one is aborted on its engine."""
    if entry.state is EntryState.RUNNING:
        return [Abort(entry.request.id, entry.engine), conclude(state, entry, outcome, message)]
    return [conclude(state, entry, outcome, message)]


def conclude(state: AgentState, entry: QueueEntry, outcome: Outcome, message: str) -> Conclude:
    """Ends a request that is queued, or that its engine no longer runs: frees its reservation and reports its end."""
    if entry.state is EntryState.RUNNING:
        state.fleet[entry.engine].release(state.now_s, entry)
        state.queue.account(entry, entry.received_service, final=True)
    _leave(state, entry, outcome)
    state.remember_end(entry.request.id, entry.attempt)
    return Conclude(
        request_id=entry.request.id,
        attempt=entry.attempt,
        gateway=entry.gateway,
        outcome=outcome,
        message=message,
        output_tokens=entry.output_tokens,
        timeline=_timeline(state, entry),
    )


def _leave(state: AgentState, entry: QueueEntry, outcome: Outcome) -> None:
    state.queue.remove(entry)
    prefill_s, tpot_s = _latencies(state.now_s, entry)
    state.ledger.finished(state.now_s, entry, outcome, prefill_s, tpot_s)


def _latencies(now_s: float, entry: QueueEntry) -> tuple[float, float]:
    """Returns the seconds from dispatch to first token, and per token after the first; each is 0 if unknown."""
    if entry.first_token_s is None or entry.dispatched_s is None:
        return 0.0, 0.0
    further = entry.output_tokens - 1
    tpot_s = (now_s - entry.first_token_s) / further if further > 0 else 0.0
    return entry.first_token_s - entry.dispatched_s, tpot_s


def _timeline(state: AgentState, entry: QueueEntry) -> Timeline:
    now_s, start_s = state.now_s, entry.enqueued_s
    return Timeline(
        worker=state.config.worker,
        engine=entry.engine,
        topology=entry.topology,
        queued_s=(now_s if entry.dispatched_s is None else entry.dispatched_s) - start_s,
        first_token_s=0.0 if entry.first_token_s is None else entry.first_token_s - start_s,
        finished_s=now_s - start_s,
        queue_length=entry.queue_length,
        overtaken=entry.overtaken,
        switches=state.queue.switches - entry.switches_before,
        upper_output_tokens=entry.upper_output_tokens,
        relegated=entry.relegated,
    )

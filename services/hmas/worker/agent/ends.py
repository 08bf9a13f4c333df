"""The ways a request leaves the worker. Each takes it from queue and engine, and returns what says so, once."""

from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.contracts.worker import Abort, Conclude, Handback, Reject, Timeline, WorkerEffect
from hmas.worker.agent.entry import EntryState, QueueEntry
from hmas.worker.agent.state import AgentState


def refuse(
    state: AgentState, entry: QueueEntry, outcome: Outcome, message: str, promise_s: float | None = None
) -> Reject:
    """Never dispatched, not in the queue (any more). `promise_s`: when there is a place for it."""
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
    """Queued and cannot be served here. What was dispatched before has ended as a failure, not a refusal."""
    if entry.tried:
        return conclude(state, entry, outcome, message)
    promise_s = state.queue.promise_s(entry) if outcome is Outcome.SLO_UNREACHABLE else None
    _leave(state, entry, outcome)
    return refuse(state, entry, outcome, message, promise_s)


def hand_back(state: AgentState, entry: QueueEntry) -> Handback:
    """Queued; the gateway may route it again."""
    state.queue.remove(entry)
    state.remember_end(entry.request.id, entry.attempt)
    return Handback(entry.request.id, entry.attempt, entry.gateway)


def drop(state: AgentState, entry: QueueEntry, outcome: Outcome, message: str) -> list[WorkerEffect]:
    """Ends it wherever it is; a running one is aborted."""
    if entry.state is EntryState.RUNNING:
        return [Abort(entry.request.id, entry.engine), conclude(state, entry, outcome, message)]
    return [conclude(state, entry, outcome, message)]


def conclude(state: AgentState, entry: QueueEntry, outcome: Outcome, message: str) -> Conclude:
    """It left for good; the engine, if any, has let go of it."""
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
    """Dispatch to first token, and time per further token; zeros where unknown."""
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

"""The ways in which a request leaves the worker, or returns to its queue.

A refusal is told to the gateway. Everything else the gateway knows already, because it settles its requests itself.
"""

from hmas.contracts.engine_kind import UNKNOWN_KIND
from hmas.contracts.execution import Refusal
from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.contracts.worker import ToGateway
from hmas.worker.agent.entry.entry import EntryState, QueueEntry
from hmas.worker.agent.state import WorkerState


def turn_away(
    state: WorkerState,
    entry: QueueEntry,
    outcome: Outcome,
    message: str,
    promise_s: float | None = None,
    *,
    ever: bool = False,
) -> ToGateway:
    """Refuses a request that is not in the queue.

    `promise_s`: seconds after which the client is told to try again; None: after the wait that the queue has now. No
    wait is told where trying again does not change the outcome: by what the outcome is, or `ever` for this request.
    """
    wait_s = state.queue_wait_s() if promise_s is None else promise_s
    helps = OUTCOME_TABLE[outcome].retry_helps and not ever
    retry_s = state.meter.retry_after_s(wait_s) if helps else None
    refusal = Refusal(
        request_id=entry.request.id, attempt=entry.attempt, outcome=outcome, message=message, retry_after_s=retry_s
    )
    return ToGateway(entry.gateway, refusal)


def refuse(state: WorkerState, entry: QueueEntry, outcome: Outcome, message: str, *, ever: bool = False) -> ToGateway:
    """Ends a request that waits here and cannot be served by this worker: now or, if so, `ever`."""
    promise_s = state.queue.promise_s(entry) if outcome is Outcome.SLO_UNREACHABLE and not ever else None
    end(state, entry, outcome)
    return turn_away(state, entry, outcome, message, promise_s, ever=ever)


def forget(state: WorkerState, entry: QueueEntry) -> None:
    """Drops a request in any state, because its gateway no longer has it here. Telemetry says nothing of it: the
    request goes on elsewhere, or its gateway reports how it ended."""
    if entry.state is EntryState.RUNNING:
        _release(state, entry)
        state.queue.account(entry, entry.received_service, final=True)
    _remove(state, entry)


def end(state: WorkerState, entry: QueueEntry, outcome: Outcome) -> None:
    """Reports the end of a request to telemetry and takes it out of the books; its slot must be free already."""
    _remove(state, entry)
    prefill_s, tpot_s = _latencies(state.now_s, entry)
    engine = state.fleet.get(entry.engine)
    kind = UNKNOWN_KIND if engine is None else engine.info.engine_kind
    state.reports.finished(state.now_s, entry, kind, outcome, prefill_s, tpot_s)


def _remove(state: WorkerState, entry: QueueEntry) -> None:
    gateway = state.gateways.get(entry.gateway)
    if gateway is not None:
        gateway.parked.pop(entry.request.id, None)
    state.untagged.pop(entry.request.id, None)
    state.queue.remove(entry)


def conclude(state: WorkerState, entry: QueueEntry, outcome: Outcome) -> None:
    """Ends a running request whose slot is free again."""
    _release(state, entry)
    state.queue.account(entry, entry.received_service, final=True)
    end(state, entry, outcome)


def back_to_the_queue(state: WorkerState, entry: QueueEntry) -> None:
    """Takes a request off its engine and back to its place in the queue."""
    _release(state, entry)
    entry.engine = entry.prefill_on = ""
    entry.granted_s = entry.computed_s = entry.first_token_s = entry.orphaned_s = None
    entry.stopped = entry.withdrawn = False
    entry.output_tokens = 0
    entry.wait_for(state.queue.kinds)
    state.queue.park(entry)
    state.sleep_waits.note(state.now_s, entry)
    state.admit(entry)


def _release(state: WorkerState, entry: QueueEntry) -> None:
    state.length_bias.forget(entry)
    engine = state.fleet[entry.engine]
    engine.release(state.now_s, entry)
    if entry.prefill_on:
        state.split_books.end(state.now_s, entry)
    gateway = state.gateways.get(entry.gateway)
    if gateway is not None:
        gateway.answered(entry.request.id)
    if not engine.life.starts and not engine.running:
        del state.fleet[entry.engine]  # it was known from an adopted request only


def _latencies(now_s: float, entry: QueueEntry) -> tuple[float, float]:
    """Returns the seconds from grant to first token, and per token after the first; each is 0 if unknown. Of a split
    request the first says nothing about one engine."""
    if entry.first_token_s is None or entry.granted_s is None:
        return 0.0, 0.0
    further = entry.output_tokens - 1
    tpot_s = (now_s - entry.first_token_s) / further if further > 0 else 0.0
    return 0.0 if entry.prefill_on else entry.first_token_s - entry.granted_s, tpot_s

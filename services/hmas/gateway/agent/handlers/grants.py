"""How the gateway agent reacts to what a worker decides about a request: it grants it, stops it, or refuses it."""

from dataclasses import replace
from math import inf

from hmas.contracts.execution import Declined, Ended, Grant, Refusal, Started, Stop
from hmas.contracts.gateway import GatewayEffect, NoteGrant, StartRun, StopRun, ToWorker
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.handlers.endings import settle
from hmas.gateway.agent.handlers.runs import give_back
from hmas.gateway.agent.handlers.submissions import route
from hmas.gateway.agent.requests.batches import Ending
from hmas.gateway.agent.requests.ledger import LedgerEntry, RequestState
from hmas.gateway.agent.state import GatewayState

# Refusals by a worker after which another worker may serve the request.
LOSSES = frozenset({Outcome.ENGINE_ERROR, Outcome.NO_ENGINE, Outcome.DRAINING})


def on_grant(state: GatewayState, worker: str, grant: Grant) -> list[GatewayEffect]:
    """Starts the run that a worker grants. A grant that comes twice is answered once; one of a request that is not at
    this worker, or under another attempt, is declined."""
    if state.config.observe:
        return [NoteGrant(worker, grant)]
    entry, new = state.ledger.get(grant.request_id), state.router.is_new_grant(worker, grant.grant)
    if entry is not None and entry.worker == worker:
        if new and entry.state is RequestState.QUEUED and entry.attempt == grant.attempt:
            if state.router.outranked(worker, grant.engine):
                return [ToWorker(worker, _unreached(grant))]
            return _start(state, entry, worker, grant)
        if entry.runs and entry.grant == grant.grant:
            return []
    return [ToWorker(worker, Declined(grant.request_id, grant.grant))]


def _start(state: GatewayState, entry: LedgerEntry, worker: str, grant: Grant) -> list[GatewayEffect]:
    state.ledger.run(entry, state.now_s, state.next_run(), grant.engine, grant.grant)
    state.stalls.started(state.now_s, entry)
    if grant.prefill:
        state.legs.begin(state.now_s, entry, grant.prefill, at_once=grant.bootstrap_port > 0)
    state.router.granted(worker, entry.request)
    entry.relegated = grant.timeline.relegated
    start = StartRun(request_id=grant.request_id, run=entry.run, worker=worker, engine=grant.engine, grant=grant)
    return [start, ToWorker(worker, Started(grant.request_id, grant.grant))]


def _unreached(grant: Grant) -> Ended:
    """Returns the answer to a grant on an engine that another worker has taken over."""
    return Ended(
        request_id=grant.request_id,
        grant=grant.grant,
        outcome=Outcome.ENGINE_ERROR,
        message=f"another worker has taken over the engine {grant.engine}",
        retryable=True,
        unreached=True,
    )


def on_stop(state: GatewayState, worker: str, message: Stop) -> list[GatewayEffect]:
    """Stops a run that has no token yet, as its worker asks; one that has goes on."""
    request_id, grant = message.request_id, message.grant
    entry = state.ledger.get(request_id)
    if entry is None or not entry.runs or entry.worker != worker or entry.grant != grant:
        return [ToWorker(worker, Declined(request_id, grant))]
    if entry.state is RequestState.COMMITTED:
        return []
    effects: list[GatewayEffect] = [StopRun(request_id, entry.run)]
    ended = Ended(
        request_id=request_id, grant=grant, outcome=Outcome.ENGINE_ERROR, message=message.reason, retryable=True
    )
    return effects + give_back(state, entry, ended)


def on_refusal(state: GatewayState, worker: str, refusal: Refusal) -> list[GatewayEffect]:
    """Sends a refused request to another worker if that may help, and settles it otherwise."""
    entry = state.ledger.get(refusal.request_id)
    waits = entry is not None and entry.state is RequestState.QUEUED
    if entry is None or not waits or entry.worker != worker or entry.attempt != refusal.attempt:
        return []
    ending = Ending(outcome=refusal.outcome, message=refusal.message, retry_after_s=refusal.retry_after_s)
    if refusal.outcome is Outcome.SLO_UNREACHABLE:
        if refusal.retry_after_s is None:
            return _refused_for_good(state, entry, worker, ending)
        if entry.content:
            wait_s = state.promises.make(state.now_s, entry.content, refusal.retry_after_s)
            ending = replace(ending, retry_after_s=wait_s)
    if refusal.outcome not in LOSSES:
        return [settle(state, entry, ending)]
    entry.refused_by = (*entry.refused_by, worker)
    if not _servable(state, entry):
        return [settle(state, entry, ending)]
    state.router.ended(worker, entry.request.id)
    return route(state, entry)


def _refused_for_good(state: GatewayState, entry: LedgerEntry, worker: str, ending: Ending) -> list[GatewayEffect]:
    """Sends a request whose SLO no engine of its worker ever keeps to a worker that may have quicker ones, and tells
    the client not to try again if there is none."""
    entry.refused_by = (*entry.refused_by, worker)
    if entry.attempt < state.config.max_attempts and any(
        w.name not in entry.refused_by for w in state.router.usable(entry.pool)
    ):
        state.router.ended(worker, entry.request.id)
        return route(state, entry)
    return [settle(state, entry, replace(ending, retry_after_s=inf))]


def _servable(state: GatewayState, entry: LedgerEntry) -> bool:
    """Returns whether a worker that has not refused the request can serve it now or soon, or the gateway itself."""
    others = any(w.name not in entry.refused_by for w in state.router.usable(entry.pool))
    if others or state.router.hopeful(state.now_s, entry.pool, entry.refused_by):
        return True
    return state.may_bypass(entry)

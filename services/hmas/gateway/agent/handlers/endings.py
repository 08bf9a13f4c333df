"""How requests end: each is settled exactly once, after its run, or before because it is cancelled, late or held for
too long."""

from collections.abc import Iterator

from hmas.contracts.execution import Ended, Withdraw
from hmas.contracts.gateway import ClientLeft, GatewayEffect, KeysEnded, Settle, StopRun
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.requests.batches import Ending
from hmas.gateway.agent.requests.ledger import LedgerEntry, RequestState
from hmas.gateway.agent.state import GatewayState


def settle(state: GatewayState, entry: LedgerEntry, ending: Ending) -> Settle:
    request = entry.request
    streamed = state.ledger.settle(entry)
    if entry.worker:
        state.router.ended(entry.worker, request.id)
    prompt_tokens = request.prompt_tokens if ending.prompt_tokens is None else ending.prompt_tokens
    uncharged = ending.output_tokens + prompt_tokens - request.prompt_tokens
    state.tenants.ended(request.tenant, waiting=not streamed, tokens=uncharged)
    if request.job is not None:
        state.job_outlook.settled(state.now_s, request.id, ending.output_tokens, ending.tpot_s)
    if entry.offered:
        state.batches.settle(state.now_s, entry, ending)
    return Settle(
        request_id=request.id,
        outcome=ending.outcome,
        message=ending.message,
        output_tokens=ending.output_tokens,
        retry_after_s=ending.retry_after_s,
    )


def _cancel(state: GatewayState, entry: LedgerEntry, outcome: Outcome, message: str) -> list[GatewayEffect]:
    """Settles a request before its end, and takes it from its worker and its engine."""
    request_id, tokens = entry.request.id, entry.output_tokens
    unseen = entry.state is RequestState.COMMITTED and entry.first_token_s is None  # a proxy relays its answer
    effects: list[GatewayEffect] = []
    if entry.runs:
        effects.append(StopRun(request_id, entry.run))
        ended = Ended(request_id=request_id, grant=entry.grant, outcome=outcome, message=message, output_tokens=tokens)
        effects += state.tell(entry.worker, ended)
        state.bypass.left(entry.ref)
    elif entry.state is RequestState.QUEUED:
        effects += state.tell(entry.worker, Withdraw(request_id, entry.attempt))
    ending = Ending(outcome=outcome, message=message, output_tokens=tokens, counted=not unseen)
    return [*effects, settle(state, entry, ending)]


def on_client_left(state: GatewayState, event: ClientLeft) -> list[GatewayEffect]:
    entry = state.ledger.get(event.request_id)
    if entry is None:
        return []
    entry.output_tokens = max(entry.output_tokens, event.output_tokens)
    return _cancel(state, entry, Outcome.CANCELLED, "the client went away")


def on_keys_ended(state: GatewayState, event: KeysEnded) -> list[GatewayEffect]:
    effects: list[GatewayEffect] = []
    for entry in filter(None, map(state.ledger.get, event.request_ids)):
        message = "the API key of this request was revoked or has expired: send it again with another key"
        effects += _cancel(state, entry, Outcome.UNAUTHENTICATED, message)
    return effects


def on_drain_expired(state: GatewayState) -> list[GatewayEffect]:
    effects: list[GatewayEffect] = []
    for entry in list(state.ledger.by_arrival()):
        effects += _cancel(state, entry, Outcome.DRAINING, "the gateway shut down before the answer ended")
    return effects + state.batches.flush(state.now_s)


def end_forlorn(state: GatewayState) -> list[GatewayEffect]:
    """Ends the requests that no worker took within `patience_s` seconds, and that the gateway may not place itself."""
    return [
        settle(state, entry, _no_worker(state, entry.request.model))
        for entry in state.ledger.held()
        if state.now_s - entry.since_s >= state.config.patience_s and not state.may_bypass(entry)
    ]


def _no_worker(state: GatewayState, model: str) -> Ending:
    """Returns the end of a request that no worker took. It may have been held before the first heartbeat told which
    models exist, so that its model is known to be wrong only now."""
    if state.directory and state.directory.resolve(model) is None:
        message = f"the model `{model}` does not exist: GET /v1/models lists those that do"
        return Ending(outcome=Outcome.UNKNOWN_MODEL, message=message)
    patience_s = state.config.patience_s
    message = f"no worker served the model `{model}` within {patience_s:g} s: try again later"
    return Ending(outcome=Outcome.NO_ENGINE, message=message, retry_after_s=patience_s)


def end_overdue(state: GatewayState) -> list[GatewayEffect]:
    """Ends the requests whose answers are not complete within `request_timeout_s` seconds."""
    limit_s = state.config.request_timeout_s
    message = f"the answer was not complete within {limit_s:g} s (HMAS_REQUEST_TIMEOUT_S)"
    effects: list[GatewayEffect] = []
    for entry in list(_overdue(state)):
        effects += _cancel(state, entry, Outcome.TIMED_OUT, message)
    return effects


def _overdue(state: GatewayState) -> Iterator[LedgerEntry]:
    limit_s, disorder_s = state.config.request_timeout_s, state.ledger.disorder_s
    for entry in state.ledger.by_arrival():
        age_s = state.now_s - entry.request.arrival_s
        if age_s >= limit_s:
            yield entry
        elif age_s < limit_s - disorder_s:
            break  # all others are too young, too

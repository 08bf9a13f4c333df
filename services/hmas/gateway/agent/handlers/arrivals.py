"""How the gateway agent reacts to a new request: it finds the request's pool and job, and accepts it or refuses it."""

from hmas.contracts.gateway import GatewayEffect, Refuse, RequestReceived
from hmas.contracts.job import StageArrived, StageLinked
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.handlers.submissions import route
from hmas.gateway.agent.requests.batches import Ending
from hmas.gateway.agent.requests.ledger import LedgerEntry
from hmas.gateway.agent.state import GatewayState


def on_received(state: GatewayState, event: RequestReceived) -> list[GatewayEffect]:
    request, content = event.request, event.content
    if request.id in state.ledger:
        raise ValueError(f"request id {request.id} is in use: the gateway must make a new one per request")
    pool = state.directory.resolve(request.model)
    entry = LedgerEntry(
        request=request,
        pool=pool or request.model,
        offered=pool is not None,
        content=content,
        body_bytes=event.body_bytes,
    )
    if entry.offered:
        state.batches.offer(state.now_s, entry)
    refusal = _refusal(state, entry, event)
    if refusal is not None:
        return [_refuse(state, entry, refusal)]
    state.tenants.accept(state.now_s, request.tenant, request.prompt_tokens)
    entry.promised = bool(content) and state.promises.redeem(state.now_s, content)
    state.ledger.open(entry)
    linked = _link(state, event)
    entry.job = linked[0].stage.job if linked else ""
    if linked and (event.job or event.job_budget_s is not None):
        entry.request = state.job_outlook.arrived(request, linked[0].stage, event.job_budget_s)
    return [*linked, *route(state, entry)]


def _link(state: GatewayState, event: RequestReceived) -> list[StageLinked]:
    """Finds the job of a request, if anything is known by which it could be found."""
    request = event.request
    if not request.prefix.nodes and not event.job and event.job_budget_s is None:
        return []
    stage = StageArrived(request_id=request.id, tenant=request.tenant, chain=request.prefix, declared=event.job)
    return state.linker.step(state.now_s, stage)


def _refusal(state: GatewayState, entry: LedgerEntry, event: RequestReceived) -> Ending | None:
    """Returns why a new request is refused, or None if it is accepted. Checked are, in this order: shutdown, the model,
    the tenant's limits, the pool's workers and queue, and the gateway's own bounds. Limits and bounds hold for all
    requests that the same body asks for."""
    request, config, siblings = entry.request, state.config, event.siblings
    if state.draining:
        return Ending(
            outcome=Outcome.DRAINING,
            message="this gateway is shutting down: send the request again, to another gateway",
            retry_after_s=config.waits.min_retry_s,
        )
    if not entry.offered and state.directory:
        message = f"the model `{request.model}` does not exist: GET /v1/models lists those that do"
        return Ending(outcome=Outcome.UNKNOWN_MODEL, message=message)
    tokens, count = request.prompt_tokens + siblings.prompt_tokens, 1 + siblings.requests
    tenant = None if event.admitted else state.tenants.refusal(state.now_s, request.tenant, tokens, count)
    if tenant is not None:
        wait_s = state.retry_after_s(entry.pool) if tenant.retry_after_s is None else tenant.retry_after_s
        return Ending(outcome=tenant.outcome, message=tenant.message, retry_after_s=wait_s)
    usable = state.router.usable(entry.pool)
    if not usable and state.ledger.held_count >= config.max_held:
        return Ending(
            outcome=Outcome.NO_ENGINE,
            message=f"no worker serves the model `{request.model}` now: try again later",
            retry_after_s=config.patience_s,
        )
    full = usable and not any(worker.has_room(request.prompt_tokens) for worker in usable)
    if full or len(state.ledger) + count > config.max_requests:
        message = f"the queue of the model `{request.model}` or of the gateway is full: try again later"
    elif state.ledger.body_bytes + entry.body_bytes + siblings.body_bytes > config.max_held_bytes:
        message = "the bodies of waiting requests fill the gateway's memory (HMAS_MAX_HELD_BYTES): try again later"
    else:
        return None
    return Ending(outcome=Outcome.POOL_QUEUE_FULL, message=message, retry_after_s=state.retry_after_s(entry.pool))


def _refuse(state: GatewayState, entry: LedgerEntry, refusal: Ending) -> Refuse:
    if entry.offered:
        state.batches.settle(state.now_s, entry, refusal)
    wait_s = ttft_s = None
    if refusal.retry_after_s is not None:
        wait_s = state.wait_s(entry.pool)
        ttft_s = wait_s + state.router.prior_ttft_s(entry.request.prompt_tokens)
    return Refuse(
        request_id=entry.request.id,
        outcome=refusal.outcome,
        message=refusal.message,
        retry_after_s=refusal.retry_after_s,
        predicted_ttft_s=ttft_s,
        estimated_wait_s=wait_s,
    )

"""Events from gateways: requests come, get their tags, and are taken back."""

from dataclasses import replace

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request
from hmas.contracts.worker import Annotated, CancelRequested, GatewayLost, RecallRequested, Submitted
from hmas.worker.agent.core import WorkerCore
from hmas.worker.agent.entry import EntryState, QueueEntry


def on_submitted(core: WorkerCore, event: Submitted) -> None:
    """Queue it, or refuse it. A repetition is ignored, a higher attempt supersedes a lower one."""
    request = event.request
    held = core.pool.get(request.id)
    if held is not None:
        if event.attempt <= held.attempt:
            return
        core.drop(held, Outcome.CANCELLED, f"superseded by attempt {event.attempt}")
    elif event.attempt <= core.ended_attempt(request.id):
        return
    estimate = core.prior.estimate(request.tenant, request.prompt_tokens)
    core.see_prior(estimate.ttft_s)
    entry = QueueEntry(request, event.attempt, event.gateway, core.next_seq(), core.now_s, estimate)
    entry.promised = event.promised
    entry.usual_tokens = core.applications.usual_tokens(request)
    refusal = _refusal(core, request) or _overflow(core, entry)
    if refusal is not None:
        core.refuse(request.id, event.attempt, event.gateway, *refusal)
        return
    core.pool.add(entry)
    core.ledger.queued(core.now_s, entry)


def _refusal(core: WorkerCore, request: Request) -> tuple[Outcome, str] | None:
    if core.draining:
        return Outcome.DRAINING, f"worker {core.config.worker} is draining"
    if engineless_too_long(core):
        return Outcome.NO_ENGINE, no_engine_message(core)
    for engine in core.fleet.values():
        if core.gate.could_ever(engine, request.prompt_tokens):
            return None
    if core.fleet:
        return Outcome.NEVER_FITS, core.gate.explain_never(list(core.fleet.values()), request.prompt_tokens)
    return None


def _overflow(core: WorkerCore, entry: QueueEntry) -> tuple[Outcome, str] | None:
    reason = core.pool.refusal(entry)
    return None if reason is None else (Outcome.POOL_QUEUE_FULL, reason)


def engineless_too_long(core: WorkerCore) -> bool:
    since_s = core.engineless_since_s
    return since_s is not None and core.now_s - since_s >= core.config.no_engine_patience_s


def no_engine_message(core: WorkerCore) -> str:
    return f"no engine of worker {core.config.worker} has been up for {core.config.no_engine_patience_s:g} s"


def on_annotated(core: WorkerCore, event: Annotated) -> None:
    entry = core.pool.get(event.request_id)
    if entry is not None and entry.attempt == event.attempt:
        core.see_prefill(event.annotation.cost.ttft_s)
        entry.claimed = event.annotation.tags
        tags = core.length_bias.corrected(entry.request, entry.claimed)
        core.pool.annotate(entry, replace(event.annotation, tags=tags))


def on_cancelled(core: WorkerCore, event: CancelRequested) -> None:
    entry = core.pool.get(event.request_id)
    if entry is not None and entry.attempt == event.attempt:
        core.drop(entry, Outcome.CANCELLED, "cancelled by the client")


def on_recalled(core: WorkerCore, event: RecallRequested) -> None:
    entry = core.pool.get(event.request_id)
    if entry is not None and entry.attempt == event.attempt and entry.state is EntryState.QUEUED:
        core.hand_back(entry)


def on_gateway_lost(core: WorkerCore, event: GatewayLost) -> None:
    for entry in [entry for entry in core.pool.entries() if entry.gateway == event.gateway]:
        core.drop(entry, Outcome.CANCELLED, f"gateway {event.gateway} is gone")


def on_drain(core: WorkerCore) -> None:
    core.draining = True
    for entry in core.pool.queued():
        core.hand_back(entry)

"""How the gateway agent reacts to what becomes of runs: their tokens, their ends and their silences; and which
requests it runs by itself while workers are silent."""

from dataclasses import replace

from hmas.contracts.execution import Ended, FirstToken, Progress
from hmas.contracts.gateway import (
    FirstTokenRelayed,
    GatewayEffect,
    RunEnded,
    RunHandedOver,
    RunsProgressed,
    StopRun,
    ToWorker,
)
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.handlers.endings import settle
from hmas.gateway.agent.handlers.submissions import empty, route, run_at, withdraw
from hmas.gateway.agent.requests.batches import Ending
from hmas.gateway.agent.requests.ledger import LedgerEntry, RequestState
from hmas.gateway.agent.requests.stalls import Stall
from hmas.gateway.agent.state import GatewayState


def on_first_relayed(state: GatewayState, event: FirstTokenRelayed) -> list[GatewayEffect]:
    entry = state.ledger.get(event.request_id)
    if entry is None or entry.state is not RequestState.RUNNING or entry.run != event.run or not entry.request.stream:
        return []
    leg = state.legs.of(entry)
    if leg is not None:
        state.legs.answered(state.now_s, leg)
    state.ledger.stream(entry, state.now_s)
    state.stalls.first_token(state.now_s, entry)
    state.tenants.started(entry.request.tenant)
    state.router.computed(entry.worker, event.request_id)
    if state.is_unattended(entry.worker):
        state.bypass.answered(entry.ref)
    return state.tell(entry.worker, FirstToken(event.request_id, entry.grant))


def on_run_handed_over(state: GatewayState, event: RunHandedOver) -> None:
    entry = state.ledger.get(event.request_id)
    if entry is not None and entry.state is RequestState.RUNNING and entry.run == event.run:
        state.ledger.hand_over(entry)
        state.tenants.started(entry.request.tenant)


def on_runs_progressed(state: GatewayState, event: RunsProgressed) -> list[GatewayEffect]:
    by_worker: dict[str, list[tuple[str, int]]] = {}
    for request_id, output_tokens in event.output_tokens:
        entry = state.ledger.get(request_id)
        if entry is None or not entry.runs:
            continue
        if output_tokens > entry.output_tokens:
            state.stalls.progressed(state.now_s, entry, output_tokens)
        entry.output_tokens = output_tokens
        if state.router.is_connected(entry.worker):
            by_worker.setdefault(entry.worker, []).append((request_id, output_tokens))
        else:
            state.bypass.answered(entry.ref)
    return [
        ToWorker(worker, Progress(tuple(i for i, _ in pairs), tuple(n for _, n in pairs)))
        for worker, pairs in by_worker.items()
    ]


def on_run_ended(state: GatewayState, event: RunEnded) -> list[GatewayEffect]:
    entry = state.ledger.get(event.request_id)
    if entry is None or not entry.runs or entry.run != event.run:
        return []
    retryable = event.retryable and entry.state is RequestState.RUNNING
    output_tokens = event.output_tokens or 0
    ended = Ended(
        request_id=event.request_id,
        grant=entry.grant,
        outcome=event.outcome,
        message=event.message,
        status=event.status,
        output_tokens=output_tokens,
        prompt_tokens=event.prompt_tokens,
        cached_tokens=event.cached_tokens,
        retryable=retryable,
        busy=event.busy,
        unreached=event.unreached,
        at_prefill=event.at_prefill,
        given_up=event.given_up,
    )
    if event.outcome is Outcome.FINISHED:
        state.stalls.finished(state.now_s, entry, output_tokens, event.cached_tokens)
        if entry.expected is not None and event.cached_tokens is not None and event.prompt_tokens:
            share = event.cached_tokens / event.prompt_tokens
            state.router.answered(entry.worker, entry.expected, share)
    unattended = state.is_unattended(entry.worker)
    if unattended and (retryable or event.outcome is Outcome.ENGINE_ERROR):
        state.bypass.failed(state.now_s, entry.ref)
    elif unattended:
        state.bypass.answered(entry.ref)
    if retryable:
        return give_back(state, entry, ended)
    ending = Ending(
        outcome=event.outcome,
        message=event.message,
        output_tokens=output_tokens,
        counted=event.output_tokens is not None,
        prompt_tokens=event.prompt_tokens,
        tpot_s=event.tpot_s,
    )
    effects = [*state.tell(entry.worker, ended), settle(state, entry, ending)]
    return effects + _refill(state, entry.pool) if unattended and state.ledger.held_count else effects


def give_back(state: GatewayState, entry: LedgerEntry, ended: Ended) -> list[GatewayEffect]:
    """Lets a request whose run ended without a token wait at its worker again. If the worker's stream is closed or the
    worker drains, the request goes elsewhere; it is settled if it was placed by the gateway itself and has failed too
    often, and no worker is usable."""
    worker = entry.worker
    if not state.is_unattended(worker):
        state.ledger.requeue(entry, state.now_s)
        effects: list[GatewayEffect] = [ToWorker(worker, ended)]
        return effects + empty(state, worker) if state.router.drains(worker) else effects
    entry.bypass_failures += entry.grant == 0
    notices = state.tell(worker, replace(ended, retryable=False))  # it goes elsewhere
    if not state.bypass.allows(entry) and (state.config.observe or not state.router.usable(entry.pool)):
        return [*notices, settle(state, entry, Ending(outcome=ended.outcome, message=ended.message))]
    state.router.ended(worker, entry.request.id)
    return [*notices, *route(state, entry)]


def give_up(state: GatewayState, stall: Stall) -> list[GatewayEffect]:
    """Ends a run that has stalled: the request runs elsewhere, or ends if it has tokens."""
    entry = stall.entry
    retryable = entry.state is RequestState.RUNNING
    message = f"the engine {entry.engine} gave no token for {stall.silent_s:.0f} s"
    ended = stalled_end(entry, message)
    if state.is_unattended(entry.worker):
        state.bypass.failed(state.now_s, entry.ref)
    stop = StopRun(entry.request.id, entry.run, f"{message}, of which {stall.bound_s:.0f} s were allowed")
    if retryable:
        return [stop, *give_back(state, entry, ended)]
    ending = Ending(outcome=ended.outcome, message=message, output_tokens=entry.output_tokens)
    return [stop, *state.tell(entry.worker, ended), settle(state, entry, ending)]


def stalled_end(entry: LedgerEntry, message: str) -> Ended:
    """Returns what the worker is told of a run that is given up; without a token it may run elsewhere."""
    return Ended(
        request_id=entry.request.id,
        grant=entry.grant,
        outcome=Outcome.ENGINE_ERROR,
        message=message,
        output_tokens=entry.output_tokens,
        retryable=entry.state is RequestState.RUNNING,
        stalled=True,
    )


def _refill(state: GatewayState, pool: str) -> list[GatewayEffect]:
    """Gives a slot in bypass that became free to the request of the pool that is held longest."""
    for entry in state.ledger.held():
        if entry.pool == pool and state.bypass.allows(entry):
            ref = state.bypass.choose(state.now_s, pool)
            return [] if ref is None else run_at(state, entry, ref)
    return []


def fill_bypass(state: GatewayState) -> list[GatewayEffect]:
    """Gives free slots in bypass to the oldest requests that are held, or that wait at workers for `pull_after_s` and
    more."""
    now_s, bypass = state.now_s, state.bypass
    free = {pool: ref for pool in state.router.pools() if (ref := bypass.choose(now_s, pool)) is not None}
    if not free:
        return []
    effects: list[GatewayEffect] = []
    waited_s = now_s - state.config.fail_open.pull_after_s
    for entry in state.ledger.by_arrival():
        ref = free.get(entry.pool)
        held = entry.state is RequestState.HELD
        waits = held or (entry.state is RequestState.QUEUED and entry.since_s <= waited_s)
        if ref is None or not waits or not bypass.allows(entry):
            continue
        effects += withdraw(state, entry)
        effects += run_at(state, entry, ref)
        ref = bypass.choose(now_s, entry.pool)
        if ref is not None:
            free[entry.pool] = ref
            continue
        del free[entry.pool]
        if not free:
            break
    return effects

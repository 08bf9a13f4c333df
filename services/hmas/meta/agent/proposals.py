"""What the selector proposes for a pool: it is asked when a decision is due, and its proposal is applied at once or
rehearsed first."""

from hmas.contracts.control_agents import AskSelector, MetaEffect, SelectorAnswered
from hmas.contracts.views import VLong
from hmas.meta.agent.pool import Ask, Decider, PoolState
from hmas.meta.agent.publication import audit
from hmas.meta.agent.rehearsing import Proposal
from hmas.meta.agent.selectors import llm
from hmas.meta.agent.selectors.table import ASKED
from hmas.meta.agent.state import MetaState
from hmas.meta.agent.switching import switch
from hmas.meta.agent.trials import rehearse


def decide(state: MetaState, pool: PoolState, view: VLong) -> list[MetaEffect]:
    """Asks the pool's selector if a decision is due and none is awaited, and nothing outranks it."""
    idle = state.epoch is None or pool.mode in (Decider.PINNED, Decider.BYPASSED) or pool.ask is not None
    if idle or state.now_s < pool.decide_due_s:
        return []
    pool.decide_due_s = state.now_s + state.config.decide_every_s
    if state.config.selector not in ASKED:
        return _consider(state, pool, _proposed(state, pool, view), view)
    state.asks += 1
    timeout_s = state.config.ask_timeout_s
    pool.ask = Ask(state.asks, state.now_s + timeout_s, view)
    choice = pool.choice
    return [
        AskSelector(ask=state.asks, view=view, current=choice.topology, hints=choice.hints, timeout_s=timeout_s)
    ]  # fmt: skip


def on_answered(state: MetaState, answer: SelectorAnswered) -> list[MetaEffect]:
    """Takes the answer to an open question. An answer that is no longer awaited (it is late, the epoch was lost, or
    the pool was pinned since) changes nothing."""
    pool = state.pools.get(answer.pool)
    if state.epoch is None or pool is None or pool.ask is None or pool.ask.number != answer.ask:
        return []
    if state.now_s >= pool.ask.deadline_s:
        return _timed_out(state, pool, pool.ask)
    view, pool.ask = pool.ask.view, None
    parsed = llm.Rejection(answer.error[: llm.MAX_REASON_CHARS]) if answer.error else llm.parse_answer(answer.answer)
    if isinstance(parsed, llm.Rejection):
        return _rules_instead(state, pool, parsed.reason, view)
    return _consider(state, pool, Proposal(parsed, llm.NAME), view)


def overdue(state: MetaState, pool: PoolState) -> list[MetaEffect]:
    """Gives up an open question whose answer is overdue."""
    if pool.ask is None or state.now_s < pool.ask.deadline_s:
        return []
    return _timed_out(state, pool, pool.ask)


def _timed_out(state: MetaState, pool: PoolState, ask: Ask) -> list[MetaEffect]:
    pool.ask = None
    return _rules_instead(state, pool, f"no answer in {state.config.ask_timeout_s:g} s", ask.view)


def _rules_instead(state: MetaState, pool: PoolState, reason: str, view: VLong) -> list[MetaEffect]:
    rejected = audit(state, pool, "rejected", llm.NOTHING, reason, llm.NAME, view)
    return [*rejected, *_consider(state, pool, _proposed(state, pool, view), view)]


def _proposed(state: MetaState, pool: PoolState, view: VLong) -> Proposal:
    return Proposal(pool.selector.select(state.now_s, view, pool.choice), pool.selector.name)


def _consider(state: MetaState, pool: PoolState, proposal: Proposal, view: VLong) -> list[MetaEffect]:
    if state.config.rehearsal.enabled:
        return rehearse(state, pool, proposal, view)
    return switch(state, pool, proposal.choice, proposal.by, view)

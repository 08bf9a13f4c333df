"""The rehearsal of a proposal: when one begins, what its outcome leads to, and what came of it in the end."""

from dataclasses import replace

from hmas.contracts.control_agents import MetaEffect, RehearsalAnswered, Rehearse
from hmas.contracts.rehearsal import PastLayout, Policy
from hmas.contracts.views import VLong
from hmas.laws.rehearsal import pool_facts
from hmas.meta.agent.pool import Decider, PoolState
from hmas.meta.agent.publication import audit
from hmas.meta.agent.rehearsing import OpenRehearsal, PredictedGain, Proposal, gain_told, winner
from hmas.meta.agent.state import MetaState
from hmas.meta.agent.switching import switch


def rehearse(state: MetaState, pool: PoolState, proposal: Proposal, view: VLong) -> list[MetaEffect]:
    """Asks for a rehearsal of a proposal that differs from what is in force, unless one is under way, the last one's
    CPU time has to be made up for, or the dwell is not over. A proposal of the bypass is not followed: emergencies are
    the guards' to see. Where the mesh only observes nothing is in force that a switch would change."""
    config, choice = state.config.rehearsal, proposal.choice
    new = (choice.topology, choice.hints) != (pool.choice.topology, pool.choice.hints)
    if not new or choice.bypass or pool.banned(state.now_s, choice.topology):
        # what is in force keeps the reason for which it was chosen, and what was predicted of it
        pool.untouched = False
        return audit(state, pool, "decided", pool.choice.topology, choice.reason, proposal.by, view)
    facts = pool_facts(pool.beats.values(), view, pool.places())
    waits = state.now_s - pool.switched_s < state.config.min_dwell_s or not state.budget.free(state.now_s)
    busy = state.rehearsal is not None or state.foretelling is not None
    if waits or busy or facts is None or pool.observes:
        return []
    state.rehearsals += 1
    state.rehearsal = OpenRehearsal(
        number=state.rehearsals,
        pool=pool.name,
        began_s=state.now_s,
        deadline_s=state.now_s + config.timeout_s,
        view=view,
        proposal=proposal,
    )
    layouts = tuple(PastLayout(state.now_s - ended_s, split) for ended_s, split in pool.layouts)
    in_force = Policy(topology=pool.choice.topology, hints=pool.choice.hints, split=pool.split)
    proposed = Policy(topology=choice.topology, hints=choice.hints, split=pool.split, proposer=proposal.by)
    return [
        Rehearse(
            number=state.rehearsals,
            pool=pool.name,
            window_s=config.window_s,
            facts=replace(facts, layouts=layouts),
            in_force=in_force,
            candidates=(proposed,),
            timeout_s=config.timeout_s,
        )
    ]


def on_rehearsed(state: MetaState, event: RehearsalAnswered) -> list[MetaEffect]:
    """Switches to the candidate if its predicted gain is clear. An answer that is no longer awaited only costs its CPU
    time."""
    opened = state.rehearsal
    state.budget.spend(state.now_s if opened is None else opened.began_s, event.cpu_s)
    if opened is None or opened.number != event.number:
        return []
    state.rehearsal = None
    pool = state.pools.get(opened.pool)
    if pool is None or state.epoch is None or pool.mode in (Decider.PINNED, Decider.BYPASSED):
        return []
    proposal, result = opened.proposal, event.rehearsal
    topology = proposal.choice.topology
    if result is None or result.abstains:
        reason = f"not rehearsed: {event.error}" if result is None else f"the rehearsal abstains: {result.abstains}"
        return audit(state, pool, "rejected", f"{topology} by {proposal.by}", reason, proposal.by, opened.view)
    best = winner(state.config.rehearsal, result)
    if best is None:
        gains = "; ".join(f"{c.policy.topology} by {c.policy.proposer}: {gain_told(c)}" for c in result.candidates)
        reason = f"no clear gain: {gains}; the simulation misses by {100 * abs(result.miss):.1f} points"
        return audit(state, pool, "rejected", f"{topology} by {proposal.by}", reason, proposal.by, opened.view)
    if (best.policy.topology, best.policy.hints) != (topology, proposal.choice.hints):
        return []
    choice = replace(proposal.choice, reason=f"{gain_told(best)}; {proposal.choice.reason}")
    effects = switch(state, pool, choice, proposal.by, opened.view, predicted=best.gain)
    if pool.choice is choice:
        pool.prediction = PredictedGain(
            by=proposal.by,
            topology=topology,
            gain=best.gain,
            before=opened.view.goodput_rate,  # what is compared with it is V_long, too
            due_s=state.now_s + state.config.rehearsal.observe_s,
        )
    return effects


def overdue(state: MetaState) -> list[MetaEffect]:
    """Gives up a rehearsal whose outcome is overdue."""
    if state.rehearsal is None or state.now_s < state.rehearsal.deadline_s:
        return []
    late = f"no outcome in {state.config.rehearsal.timeout_s:g} s"
    return on_rehearsed(state, RehearsalAnswered(number=state.rehearsal.number, rehearsal=None, error=late))


def compare(state: MetaState, pool: PoolState, view: VLong) -> list[MetaEffect]:
    """Records what a rehearsed switch brought, once V_long tells of nothing else, if it is still in force."""
    prediction = pool.prediction
    if prediction is None or (state.now_s < prediction.due_s and pool.choice.topology == prediction.topology):
        return []
    pool.prediction = None
    if state.epoch is None or pool.in_force().topology != prediction.topology:
        return []
    observed = view.goodput_rate - prediction.before
    reason = f"{100 * prediction.gain:+.1f} points predicted, {100 * observed:+.1f} observed"
    return audit(
        state, pool, "outcome", prediction.topology, reason, prediction.by, view, predicted=prediction.gain,
        observed=observed,
    )  # fmt: skip

"""What scheduling would bring the pools that are only observed: when it is simulated, and what is told of it."""

from hmas.contracts.control_agents import MetaEffect, PublishGain, RehearsalAnswered, Rehearse
from hmas.contracts.rehearsal import Policy, PoolFacts
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.contracts.views import VLong
from hmas.laws.rehearsal import pool_facts
from hmas.laws.scheduling_gains import gain_of, unknown_gain
from hmas.meta.agent.config import ForetellingConfig
from hmas.meta.agent.pool import PoolState
from hmas.meta.agent.rehearsing import OpenForetelling
from hmas.meta.agent.state import MetaState

SCHEDULED = "requests are scheduled now, so that nothing is to be foretold"


def foretell(state: MetaState) -> list[MetaEffect]:
    """Asks for a simulation of the observed pool whose turn it is, unless another one or a rehearsal is under way, or
    the CPU time of the last one has to be made up for."""
    config = state.config.foretelling
    if ended := [pool for pool in state.pools.values() if pool.foretold and pool.beats and not pool.observes]:
        return [_ended(pool) for pool in ended]
    if state.foretelling is not None:
        return _overdue(state, state.foretelling)
    if not config.enabled or state.rehearsal is not None or not state.budget.free(state.now_s):
        return []
    due = [pool for pool in state.pools.values() if pool.observes and state.now_s >= pool.foretell_due_s]
    for pool in sorted(due, key=lambda each: each.foretell_due_s):
        facts = None if pool.long is None else pool_facts(pool.beats.values(), pool.long, pool.places())
        if pool.long is None or facts is None:
            continue
        pool.foretell_due_s = state.now_s + config.every_s
        return [_asked(state, pool, pool.long, facts)]
    return []


def on_foretold(state: MetaState, event: RehearsalAnswered) -> list[MetaEffect]:
    """Tells what came out, or why nothing did."""
    opened, state.foretelling = state.foretelling, None
    if opened is None:
        return []
    state.budget.spend(opened.began_s, event.cpu_s)
    pool = state.pools.get(opened.pool)
    if pool is None or not pool.observes or state.epoch is None:
        return []
    pool.foretold = True
    return [PublishGain(_told(opened, event))]


def window_s(config: ForetellingConfig, view: VLong) -> float:
    """Returns how many seconds of past requests are replayed: longer where few come, and shorter where many do."""
    if view.arrival_rps <= 0.0:
        return config.window_s
    wanted_s = max(config.window_s, config.least_requests / view.arrival_rps)
    return min(wanted_s, config.most_window_s, config.most_requests / view.arrival_rps)


def _asked(state: MetaState, pool: PoolState, view: VLong, facts: PoolFacts) -> MetaEffect:
    config = state.config.foretelling
    state.rehearsals += 1
    topology, hints = pool.choice.topology, pool.choice.hints  # a bypass would not come where requests are scheduled
    if pool.pin is not None and pool.pin.topology is not None:
        topology, hints = pool.pin.topology, pool.pin.hints
    scheduled = Policy(topology=topology, hints=hints, split=pool.split, proposer="foretelling")
    state.foretelling = OpenForetelling(
        number=state.rehearsals,
        pool=pool.name,
        began_s=state.now_s,
        deadline_s=state.now_s + config.timeout_s,
        topology=topology.value,
        engines=len(facts.engines),
    )
    return Rehearse(
        number=state.rehearsals,
        pool=pool.name,
        window_s=window_s(config, view),
        facts=facts,
        in_force=Policy(topology=topology, observes=True),
        candidates=(scheduled,),
        timeout_s=config.timeout_s,
    )


def _overdue(state: MetaState, opened: OpenForetelling) -> list[MetaEffect]:
    """Gives up a simulation whose outcome is overdue."""
    if state.now_s < opened.deadline_s:
        return []
    late = f"the simulation took longer than {state.config.foretelling.timeout_s:g} s"
    return on_foretold(state, RehearsalAnswered(number=opened.number, rehearsal=None, error=late))


def _ended(pool: PoolState) -> MetaEffect:
    pool.foretold = False
    return PublishGain(unknown_gain(pool.name, len(pool.places()), pool.choice.topology.value, SCHEDULED))


def _told(opened: OpenForetelling, event: RehearsalAnswered) -> SchedulingGain:
    if event.rehearsal is None:
        return unknown_gain(opened.pool, opened.engines, opened.topology, event.error)
    return gain_of(opened.pool, opened.engines, opened.topology, event.rehearsal)

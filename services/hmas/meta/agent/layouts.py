"""The choice of a pool's layout: the split that the pace law and the observed demand say keeps the most on time, and
when it comes into force."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hmas.contracts.control import Split
from hmas.contracts.control_agents import MetaEffect
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.rehearsal import WARM_S
from hmas.contracts.views import PaceView, VLong
from hmas.laws.layout import described_split, engine_path
from hmas.laws.pace import (
    MIXED_SPLIT,
    Offered,
    are_ranked,
    base_share,
    best_split,
    expected,
    of_kinds,
    ranked,
    too_slow,
)
from hmas.meta.agent.config import LayoutConfig
from hmas.meta.agent.pool import Decider, PoolState
from hmas.meta.agent.publication import audit, publish_due
from hmas.meta.agent.state import MetaState

PACE = "pace"  # who chose a layout: the model of the pace law


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """A split that is to replace the one in force, the order in which its classes get the engines, and the reason."""

    split: Split
    order: tuple[str, ...]
    reason: str


def lay_out(state: MetaState, pool: PoolState, view: VLong) -> list[MetaEffect]:
    """Chooses the pool's layout anew if that is due, unless an operator or the bypass decides it."""
    config = state.config.layout
    if pool.pin is not None and pool.pin.split is not None:
        rank_pinned(config, pool)
        return []
    if not config.adaptive or state.epoch is None or pool.mode is Decider.BYPASSED:
        return []
    if state.now_s < pool.layout_due_s:
        return []
    engines = () if pool.short is None else pool.short.engines
    steps_s = [engine.step_s for engine in engines if engine.up and not engine.asleep]
    choice = choose_layout(config, view, pool.split, pool.places(), steps_s, pool.kinds)
    if choice is None:
        return []
    pool.layout_due_s = state.now_s + config.hold_s
    pool.lay_out(state.now_s, choice.split, choice.order, state.config.rehearsal.window_s + WARM_S, choice.reason, PACE)
    audited = audit(state, pool, "layout", described_split(choice.split), choice.reason, PACE, view)
    return [*audited, *publish_due(state, pool)]


def rank_pinned(config: LayoutConfig, pool: PoolState) -> None:
    """Gives the classes of a pinned split the engines in the order of their kinds' steps, once these are known. They
    keep that order until another engine comes, or a kind is clearly slower than one behind it. What was measured of
    single engines does not count: those of a kind that serve different classes have different loads, by which what is
    fitted to them differs, and a pin is to stay as it is."""
    if pool.long is None:
        return
    places = pool.places()
    paces = of_kinds(_measured(config, pool.long), pool.kinds)
    if any(each not in paces for each in places):
        return
    if not set(places) <= set(pool.order) or not are_ranked(paces, places, config.pace):
        known = {each: paces[each] for each in places}
        pool.order = tuple(each for each, _ in ranked(known, places, config.pace))


def _measured(config: LayoutConfig, view: VLong) -> dict[str, PaceView]:
    """Returns the pace laws, by the places of their engines, that rest on enough observations."""
    return {
        engine_path(pace.worker, pace.engine): pace
        for pace in view.paces
        if pace.observations >= config.min_observations
    }


def choose_layout(
    config: LayoutConfig, view: VLong, current: Split, places: Sequence[str], steps_s: Sequence[float],
    kinds: Mapping[str, EngineKind],
) -> LayoutChoice | None:  # fmt: skip
    """Returns the split that should replace `current`, whose classes have the engines at `places` in this order; None
    keeps it. `steps_s`: what a step takes on each engine now. `kinds`: of engines, by their places.

    It is replaced only for a gain above the margin, so that an error of the model or a passing change of the demand
    moves nothing. Too little demand or too few observations of the engines' pace say nothing. A mixed pool is split
    only where its steps are too slow for some of the demand as it is, and where short steps cost much of an engine's
    work because most of such a step passes without any request. Where they cost little, a mixed pool can keep them for
    all: the model expects a gain of slow steps in overload that never comes, because requests wait in the queue and not
    in the engines, and each half of the pool has bursts of its own. Where few clients state their SLOs, classes are as
    good as the tags, and a request in the wrong one costs more than mixing does.
    """
    known = _measured(config, view)
    paces = {each: known[each] for each in places if each in known}
    requests = sum(demand.requests for demand in view.demands)
    if len(places) < 2 or 2 * len(paces) < len(places) or requests < config.min_requests:
        return None
    if view.stated_share < config.least_stated:
        reason = f"{view.stated_share:.0%} of the requests state their SLOs, fewer than {config.least_stated:.0%}"
        return LayoutChoice(MIXED_SPLIT, tuple(places), reason) if current.cuts_s else None
    demands: list[Offered] = [(demand, demand.rps) for demand in view.demands]
    total_rps = sum(demand.rps for demand in view.demands)
    if not current.cuts_s and too_slow(demands, steps_s, config.pace) < config.too_slow:
        return None
    if not current.cuts_s and base_share(demands, list(paces.values()), config.tightest) < config.least_base:
        return None
    best_order = ranked(of_kinds(paces, kinds) | paces, places, config.pace)
    law = dict(best_order)
    fitting = len(current.engines) <= len(places) and (not current.cuts_s or sum(current.engines) == len(places))
    now_rps = expected(demands, [law[each] for each in places], current, config.pace) if fitting else 0.0
    in_order = [pace for _, pace in best_order]
    split, then_rps = best_split(demands, in_order, config.pace, classes=config.classes, cuts=config.cuts)
    gain = (then_rps - now_rps) / total_rps
    if gain <= (config.shift if current.cuts_s and split.cuts_s else config.margin):
        return None
    shares = f"{now_rps / total_rps:.1%} to {then_rps / total_rps:.1%}"
    reason = f"on time, as expected: {shares} with {described_split(split)}"
    return LayoutChoice(split, tuple(each for each, _ in best_order), reason)

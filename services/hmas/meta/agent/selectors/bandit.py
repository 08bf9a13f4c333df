"""The contextual bandit (H-MAS App. C.2): LinUCB with disjoint arms (Li et al., WWW 2010) over a subset of Omega.

The reward of a choice is one minus V_long's smoothed violation rate after the decision period in which it was in
force. The meta agent's bypass, rollback and dwell limit what exploration may cost.
"""

from river.bandit import LinUCBDisjoint

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import VLong
from hmas.meta.agent.config import RulesConfig
from hmas.meta.agent.selectors.features import FEATURES, features, scaled, settled
from hmas.meta.agent.selectors.selector import Choice

ARMS = (
    TopologyName.MAX_ON_TIME, TopologyName.SJF, TopologyName.EDF, TopologyName.TWO_LANE, TopologyName.HYBRID,
    TopologyName.FCFS,
)  # fmt: skip
SEED = 1
PRIOR_PRECISION = 1.0
NOISE_PRECISION = 25.0  # goodput rates of one context scatter by about 0.2


class BanditSelector:
    """Chooses the topology with the highest upper confidence bound of its reward, and learns from the reward of its
    last choice. A choice that a guard overruled or a rehearsal refused teaches nothing, because its reward was not
    seen; it waits until every other arm has been chosen, so that a bandit whose choices are refused proposes all."""

    name = "bandit"

    def __init__(self, config: RulesConfig) -> None:
        self._min_settled = config.min_settled
        self._policy = LinUCBDisjoint(alpha=PRIOR_PRECISION, beta=NOISE_PRECISION, seed=SEED)
        self._last: tuple[TopologyName, dict[str, float]] | None = None
        self._refused: set[TopologyName] = set()

    def select(self, now_s: float, view: VLong, current: Choice) -> Choice:
        count = settled(view)
        if count < self._min_settled:
            return Choice(current.topology, current.hints, f"kept: {count} requests settled, too few to judge")
        reward = 1.0 - view.violation_rate
        if self._last is not None and self._last[0] is current.topology:
            self._policy.update(current.topology, self._last[1], reward)  # type: ignore[no-untyped-call]
            self._refused.clear()
        elif self._last is not None:
            self._refused.add(self._last[0])
        context = _context(view)
        arm = TopologyName(str(self._policy.pull([*self._open(current.topology)], context=context)))
        self._last = (arm, context)
        return Choice(arm, Hints(), f"highest upper confidence; last reward {reward:.2f}")

    def _open(self, current: TopologyName) -> list[TopologyName]:
        """Returns the arms that may be chosen now."""
        if not self._refused:
            return list(ARMS)
        found = [arm for arm in ARMS if arm not in self._refused and arm is not current]
        if not found:
            self._refused.clear()
        return found or list(ARMS)


def _context(view: VLong) -> dict[str, float]:
    """Returns the view's features, scaled and cut at three standard deviations, and a constant, by name."""
    values = scaled(features(view))
    return {"1": 1.0} | {name: max(-3.0, min(3.0, v)) / 3.0 for name, v in zip(FEATURES, values, strict=True)}

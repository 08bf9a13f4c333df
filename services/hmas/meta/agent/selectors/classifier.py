"""The supervised classifier (H-MAS App. C.2): a small decision tree on V_long, trained offline on simulated runs."""

from hmas.contracts.control import Hints
from hmas.contracts.views import VLong
from hmas.meta.agent.config import RulesConfig
from hmas.meta.agent.selectors.features import features, settled
from hmas.meta.agent.selectors.learned import Learned
from hmas.meta.agent.selectors.selector import Choice


class ClassifierSelector:
    """Chooses the topology of the tree's leaf for the view. It keeps the topology in force if less than `least_share`
    of the leaf's training weight agrees, or if too few requests have settled."""

    name = "classifier"

    def __init__(self, config: RulesConfig, tree: Learned, *, least_share: float = 0.5) -> None:
        self._min_settled = config.min_settled
        self._tree = tree
        self._least_share = least_share

    def select(self, now_s: float, view: VLong, current: Choice) -> Choice:
        count = settled(view)
        if count < self._min_settled:
            return Choice(current.topology, current.hints, f"kept: {count} requests settled, too few to judge")
        leaf = self._tree.classify(features(view))
        if leaf.share < self._least_share:
            return Choice(current.topology, current.hints, f"kept: the tree is in doubt ({leaf.share:.0%})")
        return Choice(leaf.topology, Hints(), f"best in {leaf.share:.0%} of the like")

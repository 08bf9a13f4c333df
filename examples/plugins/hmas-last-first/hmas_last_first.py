"""An order, `last_first`, and a selector that chooses it while first tokens are late."""

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import VLong
from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.selectors.selector import Choice
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies.base import KeyOrdered

LAST_FIRST = TopologyName("last_first")
LATE = 0.2  # share of late first tokens from which on the last request goes first


class LastFirst(KeyOrdered):
    """Last come, first served: under overload those that come are on time, and those that waited too long are late."""

    name = LAST_FIRST
    uses_tags = False  # predictions do not change it, so that no request waits for its tags
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return -entry.request.arrival_s

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"came {now_s - entry.request.arrival_s:.1f} s ago"


def make_last_first(hints: Hints) -> LastFirst:
    return LastFirst()


class LastFirstWhenLate:
    """Chooses `last_first` while more than `LATE` of the first tokens are late, and the usual topology otherwise."""

    name = "last_first_when_late"

    def __init__(self, config: MetaConfig) -> None:
        self._usual = config.rules.usual

    def select(self, now_s: float, view: VLong, current: Choice) -> Choice:
        late = view.ttft_violation_rate
        return Choice(LAST_FIRST if late > LATE else self._usual, Hints(), f"{late:.0%} of first tokens late")

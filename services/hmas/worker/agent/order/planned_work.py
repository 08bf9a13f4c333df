"""The work of a queued request, as the orders by deadline plan it."""

from copy import deepcopy
from math import inf

from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.keyed_heap import Rank


class PlannedWork:
    """The work of one queued request as the planner sees it.

    `work` is in engine seconds and must be done by the instant `due_s`; `price` is work per unit of value, so the job
    with the highest price is given up first; `rank` is its rank in the order, (key, seq). `passing` is the slack that
    it needs to go before others: its work, or infinite for one that may not.
    """

    __slots__ = ("due_s", "entry", "passing", "price", "rank", "work")

    def __init__(
        self, entry: QueueEntry, key: float, due_s: float, work: float, price: float, *, passes: bool = True
    ) -> None:
        self.passing = work if passes else inf
        self.entry = entry
        self.rank: Rank = (key, entry.seq)
        self.due_s = due_s
        self.work = work
        self.price = price

    def __deepcopy__(self, memo: dict[int, object]) -> "PlannedWork":
        twin = memo[id(self)] = object.__new__(PlannedWork)
        twin.entry = deepcopy(self.entry, memo)
        twin.passing, twin.rank, twin.due_s = self.passing, self.rank, self.due_s
        twin.work, twin.price = self.work, self.price
        return twin

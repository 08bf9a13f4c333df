"""Promises to refused requests: one that was told when to come back, and does so then, is marked as promised, at
whichever gateway it comes."""

from collections import OrderedDict
from collections.abc import Iterable
from math import inf

from hmas.contracts.use import ToldPromise
from hmas.gateway.agent.config import GatewayConfig


class Promises:
    """The promises by content of the request, at most one for each content; beyond `max_promises` the oldest is
    forgotten."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config, self._max_reported = config.promises, config.neighbours.max_reported
        self._due_s: OrderedDict[str, float] = OrderedDict()
        self._made: dict[str, float] = {}  # since the last report, as are those redeemed
        self._redeemed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._due_s)

    @property
    def changed(self) -> bool:
        """Whether a promise was made or used up since the last report."""
        return bool(self._made or self._redeemed)

    def make(self, now_s: float, content: str, wait_s: float) -> float:
        """Records that a refused request may come back in `wait_s` seconds; returns the seconds to tell its client.

        A request that came back too early and is refused again keeps its first promise if that is earlier.
        """
        due_s = self._keep(now_s, content, now_s + wait_s)
        if len(self._made) < self._max_reported:
            self._made[content] = due_s
        return due_s - now_s

    def redeem(self, now_s: float, content: str) -> bool:
        """Returns whether a request with this content was promised a place and comes in time: not before the promised
        instant, and at most `kept_s` seconds after it. The promise is then used up."""
        due_s = self._due_s.get(content)
        if due_s is None or now_s < due_s:
            return False
        del self._due_s[content]
        self._made.pop(content, None)
        if len(self._redeemed) < self._max_reported:
            self._redeemed[content] = None
        return now_s <= due_s + self._config.kept_s

    def hear(self, now_s: float, promised: Iterable[ToldPromise], redeemed: Iterable[str]) -> None:
        """Takes the promises that another gateway made, and those that were used up there."""
        for promise in promised:
            self._keep(now_s, promise.content, now_s + promise.due_s)
        for content in redeemed:
            self._due_s.pop(content, None)

    def report(self, now_s: float) -> tuple[tuple[ToldPromise, ...], tuple[str, ...]]:
        """Returns the promises that were made, and those that were used up, since the last call."""
        made = tuple(ToldPromise(content=content, due_s=due_s - now_s) for content, due_s in self._made.items())
        redeemed = tuple(self._redeemed)
        self._made, self._redeemed = {}, {}
        return made, redeemed

    def _keep(self, now_s: float, content: str, due_s: float) -> float:
        told_s = self._due_s.pop(content, -inf)
        if now_s <= told_s < due_s:
            due_s = told_s
        self._due_s[content] = due_s
        if len(self._due_s) > self._config.max_promises:
            self._due_s.popitem(last=False)
        return due_s

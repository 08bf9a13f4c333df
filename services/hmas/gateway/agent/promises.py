"""Promises to refused requests: one that was told when to come back, and does so then, is marked as promised."""

from collections import OrderedDict
from math import inf

from hmas.gateway.agent.config import GatewayConfig


class Promises:
    """The promises by content of the request, at most one for each content; beyond `max_promises` the oldest is
    forgotten."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._due_s: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._due_s)

    def make(self, now_s: float, content: str, wait_s: float) -> float:
        """Records that a refused request may come back in `wait_s` seconds; returns the seconds to tell its client.

        A request that came back too early and is refused again keeps its first promise if that is earlier.
        """
        told_s, due_s = self._due_s.pop(content, -inf), now_s + wait_s
        if now_s <= told_s < due_s:
            due_s = told_s
        self._due_s[content] = due_s
        if len(self._due_s) > self._config.max_promises:
            self._due_s.popitem(last=False)
        return due_s - now_s

    def redeem(self, now_s: float, content: str) -> bool:
        """Returns whether a request with this content was promised a place and comes in time: not before the promised
        instant, and at most `promise_kept_s` seconds after it. The promise is then used up."""
        due_s = self._due_s.get(content)
        if due_s is None or now_s < due_s:
            return False
        del self._due_s[content]
        return now_s <= due_s + self._config.promise_kept_s

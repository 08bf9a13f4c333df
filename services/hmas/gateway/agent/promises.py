"""Refused requests that were told when to come back: one that does so finds a place."""

from collections import OrderedDict
from math import inf

from hmas.gateway.agent.config import GatewayConfig


class Promises:
    """By content, one each; beyond `max_promises` the oldest is forgotten."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._due_s: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._due_s)

    def make(self, now_s: float, content: str, wait_s: float) -> float:
        """How long to wait. One that comes too early and is refused again keeps the time that was told before."""
        told_s, due_s = self._due_s.pop(content, -inf), now_s + wait_s
        if now_s <= told_s < due_s:
            due_s = told_s
        self._due_s[content] = due_s
        if len(self._due_s) > self._config.max_promises:
            self._due_s.popitem(last=False)
        return due_s - now_s

    def redeem(self, now_s: float, content: str) -> bool:
        """Whether a request with this content has a place now; it has one once."""
        due_s = self._due_s.get(content)
        if due_s is None or now_s < due_s:
            return False
        del self._due_s[content]
        return now_s <= due_s + self._config.promise_kept_s

"""Calls in a closed loop: each is sent when those that it waits for have ended well. Pure."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

Call = TypeVar("Call", bound=Hashable)


class ClosedLoop(Generic[Call]):
    """Which calls the end of others lets go. `waits` maps each call, in the order in which equals are let go, to the
    earlier calls that it waits for; a call that waits for none is never let go, because nothing holds it."""

    def __init__(self, waits: Mapping[Call, Iterable[Call]]) -> None:
        self._left = {call: set(earlier) for call, earlier in waits.items()}
        self._later: dict[Call, list[Call]] = {}
        for call, earlier in self._left.items():
            for each in earlier:
                self._later.setdefault(each, []).append(call)

    def ended(self, call: Call) -> list[Call]:
        """Returns the calls that waited for this one last."""
        free = []
        for later in self._later.pop(call, ()):
            left = self._left.get(later)
            if left is not None:
                left.discard(call)
                if not left:
                    free.append(later)
        return free

    def lost(self, call: Call) -> list[Call]:
        """Returns the calls that wait for this one, or for one that does, and that were not lost before; none of them
        will be let go any more."""
        found: list[Call] = []
        open_calls = [call]
        while open_calls:
            for later in self._later.pop(open_calls.pop(), ()):
                if self._left.pop(later, None) is not None:
                    found.append(later)
                    open_calls.append(later)
        return found

"""The one shape of everything that decides."""

from typing import Protocol, TypeVar

Event_contra = TypeVar("Event_contra", contravariant=True)
Effect = TypeVar("Effect")


class Agent(Protocol[Event_contra, Effect]):
    """No I/O, no clock of its own, no `async`. State changes only in `step`.

    `now_s` never runs backwards. The same events at the same times give the same effects, in the same order.
    """

    def step(self, now_s: float, event: Event_contra) -> list[Effect]: ...

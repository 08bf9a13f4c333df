"""The interface that all agents have."""

from typing import Protocol, TypeVar

Event_contra = TypeVar("Event_contra", contravariant=True)
Effect = TypeVar("Effect")


class Agent(Protocol[Event_contra, Effect]):
    """A class that decides: it has no I/O, no clock of its own and no `async`, and changes its state only in `step`.

    The same events at the same times give the same effects, in the same order.
    """

    def step(self, now_s: float, event: Event_contra) -> list[Effect]:
        """Takes an event that happened at `now_s` (s, never earlier than before) and returns what is to be done."""
        ...

"""Engines that join or leave a simulated mesh while it runs, as data."""

from dataclasses import dataclass
from enum import StrEnum


class ChangeKind(StrEnum):
    """What may happen to an engine of a setup.

    - join: it is found at that instant, and not there before.
    - drain: it is found no longer, so that its worker grants it nothing any more. What runs there goes on.
    """

    JOIN = "join"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class EngineChange:
    """What happens to an `engine` (e0, e1 ...) at the instant `at_s`, in s. Raises ValueError if that is below 0."""

    at_s: float
    kind: ChangeKind
    engine: str

    def __post_init__(self) -> None:
        if self.at_s < 0.0:
            raise ValueError(f"the {self.kind} of {self.engine} must have an at_s of 0 or more")


def late(changes: tuple[EngineChange, ...]) -> frozenset[str]:
    """Returns the engines that are not there when a run begins."""
    return frozenset(change.engine for change in changes if change.kind is ChangeKind.JOIN)

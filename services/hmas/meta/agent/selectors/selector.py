"""The interface of selectors, and what they return."""

from dataclasses import dataclass
from typing import Protocol

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import VLong


@dataclass(frozen=True, slots=True)
class Choice:
    """A selector's proposal: a topology (A_t), its hints (h_t) and the reason. `bypass` asks for the bypass xi."""

    topology: TopologyName
    hints: Hints
    reason: str
    bypass: bool = False


class Selector(Protocol):
    """A selector that answers at once."""

    @property
    def name(self) -> str: ...

    def select(self, now_s: float, view: VLong, current: Choice) -> Choice:
        """Returns the choice for the view, given the choice in force."""
        ...

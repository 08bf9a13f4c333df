"""What a selector is."""

from dataclasses import dataclass
from typing import Protocol

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import VLong


@dataclass(frozen=True, slots=True)
class Choice:
    """A_t and h_t with the reason. `bypass`: the selector asks for xi."""

    topology: TopologyName
    hints: Hints
    reason: str
    bypass: bool = False


class Selector(Protocol):
    """Answers at once."""

    @property
    def name(self) -> str: ...

    def select(self, now_s: float, view: VLong, current: Choice) -> Choice: ...

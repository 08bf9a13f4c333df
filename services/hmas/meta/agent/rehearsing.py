"""Rehearsals before a switch: how much CPU time they may take, and which outcome is good enough."""

from dataclasses import dataclass

from hmas.contracts.control import TopologyName
from hmas.contracts.rehearsal import Rehearsal, Rehearsed
from hmas.contracts.views import VLong
from hmas.meta.agent.config import RehearsalConfig
from hmas.meta.agent.selectors.selector import Choice


@dataclass(frozen=True, slots=True)
class Proposal:
    """A selector's choice, and the selector's name."""

    choice: Choice
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRehearsal:
    """A rehearsal that was asked for and not answered yet."""

    number: int
    pool: str
    began_s: float
    deadline_s: float
    view: VLong
    proposal: Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenForetelling:
    """A simulation of scheduling that was asked for and not answered yet."""

    number: int
    pool: str
    began_s: float
    deadline_s: float
    topology: str
    engines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedGain:
    """What a rehearsal promised of a switch, as a difference of shares on time, and the share that was on time before.
    `due_s`: when V_long tells of the time after the switch alone."""

    by: str
    topology: TopologyName
    gain: float
    before: float
    due_s: float


class CpuBudget:
    """Spreads rehearsals so that they take at most `share` of one core on average: after each there is a pause in
    proportion to its CPU time."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._free_s = float("-inf")

    def free(self, now_s: float) -> bool:
        return now_s >= self._free_s

    def spend(self, began_s: float, cpu_s: float) -> None:
        self._free_s = max(self._free_s, began_s + cpu_s / self._share)


def winner(config: RehearsalConfig, rehearsal: Rehearsal) -> Rehearsed | None:
    """Returns the candidate with the largest gain if even the lower end of its interval is above the margin, and above
    what the simulation misses by: a gain is a difference of two simulations, and cannot be believed further than
    they can."""
    best = max(rehearsal.candidates, key=lambda each: each.gain, default=None)
    return best if best is not None and best.low > max(config.margin, abs(rehearsal.miss)) else None


def gain_told(rehearsed: Rehearsed) -> str:
    """Returns a predicted gain in words."""
    gain, low, high = (f"{100 * value:+.1f}" for value in (rehearsed.gain, rehearsed.low, rehearsed.high))
    return f"{gain} points predicted ({low} to {high})"

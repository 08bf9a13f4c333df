"""Rehearsals before a switch: which proposals are tried, how much CPU time that may take, and which one is good
enough."""

from collections.abc import Sequence
from dataclasses import dataclass

from hmas.contracts.control import Hints, Split, TopologyName
from hmas.contracts.rehearsal import Policy, Rehearsal, Rehearsed
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
    """A rehearsal that was asked for and not answered yet. The proposals are by topology and hints."""

    number: int
    pool: str
    began_s: float
    deadline_s: float
    view: VLong
    proposals: dict[tuple[TopologyName, Hints], Proposal]


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


def candidates(
    proposals: Sequence[Proposal], current: Choice, split: Split, most: int
) -> tuple[dict[tuple[TopologyName, Hints], Proposal], tuple[Policy, ...]]:
    """Returns the proposals that differ from what is in force and from one another, the first `most` of them, and their
    policies. A proposal of the bypass is none: emergencies are the guards' to see."""
    found: dict[tuple[TopologyName, Hints], Proposal] = {}
    for proposal in proposals:
        key = (proposal.choice.topology, proposal.choice.hints)
        if key != (current.topology, current.hints) and not proposal.choice.bypass and len(found) < most:
            found.setdefault(key, proposal)
    policies = (Policy(topology=t, hints=h, split=split, proposer=p.by) for (t, h), p in found.items())
    return found, tuple(policies)


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

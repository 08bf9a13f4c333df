"""How many engines keep a share of a pool's last requests on time, as it was and as scheduled."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from hmas.contracts.rehearsal import Policy, Rehearsal
from hmas.laws.scheduling_gains import clipped

MOST_TIMES = 2  # as many engines as there are, at most
SizedRehearsal = Callable[[Sequence[Policy]], Awaitable[Rehearsal]]


@dataclass(frozen=True, slots=True)
class EnginesNeeded:
    """The least engines with which the share was on time; None: not even `tried` are enough."""

    engines: int | None
    tried: int


@dataclass(slots=True)
class _Search:
    """Bisects between `low`, from which on it is not known to be too few, and `high`, which is enough or was not
    tried."""

    policy: Policy
    low: int
    high: int

    @property
    def engines(self) -> int:
        return (self.low + self.high) // 2

    def hear(self, enough: bool) -> None:
        if enough:
            self.high = self.engines
        else:
            self.low = self.engines + 1


async def engines_needed(
    policies: Sequence[Policy], engines: int, share: float, ask: SizedRehearsal
) -> tuple[list[EnginesNeeded], str]:
    """Returns for each policy how many engines keep the share on time, of at most `MOST_TIMES` those that there are,
    and why the figures must not be believed, empty if they may. More engines are taken to be never worse. `ask`
    rehearses policies beside what is in force."""
    most = MOST_TIMES * engines
    searches = [_Search(policy, 1, most + 1) for policy in policies]
    while open_ones := [search for search in searches if search.low < search.high]:
        found = await ask([replace(search.policy, engines=search.engines) for search in open_ones])
        if found.abstains:
            return [], found.abstains
        for search, played in zip(open_ones, found.candidates, strict=True):
            search.hear(clipped(found.observed.on_time + played.gain) >= share)
    return [EnginesNeeded(search.low if search.low <= most else None, most) for search in searches], ""

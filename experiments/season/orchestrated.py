"""The engines of a day, as an orchestrator runs them: so many of each type as are ordered, within the cards."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from experiments.season.days import DAY_S, PoolLoad
from experiments.season.valuing import EngineNames, SeasonValues
from hmas.contracts.pool_plan import Catalogue
from hmas_loadgen.traces.servegen import WINDOW_S

DRAIN_S = 60.0  # until the last answer of an engine that leaves has ended
HOUR_S = 3600.0


@dataclass(slots=True)
class OrderedEngine:
    """One engine: it holds its cards from `began_s` on, serves from `up_s` to `left_s`, and holds them until
    `gone_s`."""

    kind: str
    began_s: float
    up_s: float
    left_s: float = DAY_S
    gone_s: float = DAY_S


@dataclass(slots=True)
class Orchestrated:
    """Starts what is ordered when there are cards for it, and drains the newest of what is too much."""

    catalogue: Catalogue
    cards: int
    engines: list[OrderedEngine] = field(default_factory=list)
    ordered: dict[str, int] = field(default_factory=dict)
    _open: bool = False

    def begin(self, ordered: Mapping[str, int]) -> None:
        """Has these engines serve from the start."""
        self.ordered = dict(ordered)
        self.engines = [OrderedEngine(kind, 0.0, 0.0) for kind, count in ordered.items() for _ in range(count)]

    def order(self, ordered: Mapping[str, int]) -> None:
        self._open = self._open or any(self.ordered.get(kind, 0) != count for kind, count in ordered.items())
        self.ordered |= ordered

    def there(self, now_s: float) -> list[OrderedEngine]:
        """Returns the engines that are known: those that serve, and those that drain."""
        return [each for each in self.engines if each.up_s <= now_s < each.gone_s]

    def work(self, now_s: float) -> None:
        """Does what was ordered and can be done now."""
        if not self._open:
            return
        self._open = False
        kinds = {each.name: each for each in self.catalogue.types}
        held = sum(kinds[each.kind].gpus for each in self.engines if now_s < each.gone_s)
        for kind, count in self.ordered.items():
            staying = [each for each in self.engines if each.kind == kind and now_s < each.left_s]
            for each in staying[count:]:
                each.left_s, each.gone_s = now_s, now_s + DRAIN_S
            for _ in range(count - len(staying)):
                if held + kinds[kind].gpus > self.cards:
                    self._open = True  # it waits for cards
                    break
                held += kinds[kind].gpus
                self.engines.append(OrderedEngine(kind, now_s, now_s + kinds[kind].start_s))

    def card_hours(self) -> float:
        sizes = {each.name: each.gpus for each in self.catalogue.types}
        return sum(sizes[each.kind] * (min(each.gone_s, DAY_S) - each.began_s) for each in self.engines) / HOUR_S

    def serving(self, pools: Mapping[str, str]) -> Iterator[tuple[float, float, dict[str, EngineNames]]]:
        """Yields from when to when which engines serve each pool. `pools` tells the pool of each type."""
        marks = {0.0, *(each.up_s for each in self.engines), *(each.left_s for each in self.engines), DAY_S}
        times = sorted(time for time in marks if time <= DAY_S)
        for first_s, last_s in pairwise(times):
            found: dict[str, list[str]] = {pool: [] for pool in pools.values()}
            for each in self.engines:
                if each.up_s <= first_s and last_s <= each.left_s:
                    found[pools[each.kind]].append(each.kind)
            yield first_s, last_s, {pool: tuple(sorted(own)) for pool, own in found.items()}


def hourly_of(
    pieces: Iterator[tuple[float, float, dict[str, EngineNames]]],
    loads: tuple[tuple[PoolLoad, ...], ...],
    values: SeasonValues,
    seed: int,
) -> list[tuple[float, float]]:
    """Returns for each hour how many requests there are, and how many of them are on time."""
    hours = [[0.0, 0.0] for _ in range(round(DAY_S / HOUR_S))]
    for first_s, last_s, engines in pieces:
        at_s = first_s
        while at_s < last_s:
            number = int(at_s // WINDOW_S)
            until_s = min(last_s, (number + 1) * WINDOW_S)
            for load in loads[number]:
                requests = load.rate_rps * (until_s - at_s)
                hour = hours[int(at_s // HOUR_S)]
                hour[0] += requests
                hour[1] += requests * values.share(load, engines[load.pool], seed)
            at_s = until_s
    return [(requests, on_time) for requests, on_time in hours]

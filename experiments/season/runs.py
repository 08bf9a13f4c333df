"""A recorded day on so many cards under each system, and the rows made of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.plans.cases import HARDWARE, kinds_of
from experiments.plans.planning import SAMPLE
from experiments.season.days import DAY_S, DAYS, SeasonDay
from experiments.season.orchestrated import HOUR_S, Orchestrated, hourly_of
from experiments.season.replanned import ReplannedDay
from experiments.season.rivals import (
    TARGETS,
    DayLoads,
    DayPlan,
    DaySearch,
    Wanted,
    best_of_day,
    by_lateness,
    by_load,
    by_window,
    counts_of,
    rates_kept,
    scaled_day,
)
from experiments.season.valuing import EngineNames, SeasonValues
from experiments.study import Figures, Finished, Options
from hmas.contracts.pool_plan import Budget, Catalogue
from hmas_lab.sim.stored import cell_key

CARDS = (12, 14)
MORE_CARDS = 16  # on which the static plan alone is judged, since another system may do as well with fewer
START_S = (90.0, 240.0)
STATIC, ONE_TYPE, LATENESS, LOAD, ORACLE = "static best", "static, one type", "lateness", "load", "best of each window"
REPLANNED = tuple(f"re-planned, starts of {start_s:g} s" for start_s in START_S)
SYSTEMS = (STATIC, ONE_TYPE, LATENESS, LOAD, *REPLANNED, ORACLE)
Pieces = Iterable[tuple[float, float, dict[str, EngineNames]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeasonCell:
    """A day on so many cards, judged on the samples of `seeds` seeds."""

    day: str
    cards: int
    seeds: int

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"{self.day} on {self.cards} cards"


def cells(options: Options, found: Finished) -> Iterator[Sequence[SeasonCell]]:
    """Yields the days on the fewest cards first. Raises ValueError without recordings."""
    recordings_of(options)
    for cards in (*CARDS, MORE_CARDS):
        yield [SeasonCell(day=day.name, cards=cards, seeds=options.seeds) for day in DAYS]


def recordings_of(options: Options) -> Path:
    """Returns the folder of recorded days. Raises ValueError if there is none."""
    folder = options.data / "traces" if options.data is not None else None
    if folder is None or not folder.is_dir():
        raise ValueError("this needs recorded days: give --data FOLDER with traces/servegen_* in it")
    return folder


def compute(cell: SeasonCell, folder: Path) -> Figures:
    """Returns for each system the requests on time in each hour, of each seed, the card hours, and when it ordered
    engines."""
    return _Season(cell, next(day for day in DAYS if day.name == cell.day), folder).figures()


class _Season:
    def __init__(self, cell: SeasonCell, day: SeasonDay, folder: Path) -> None:
        self._cell, self._values = cell, SeasonValues()
        self._loads: DayLoads = day.loads(folder)
        self._pools = {kind.name: pool.pool for pool in day.pools for kind in kinds_of(pool.pool)}
        self._budget = Budget(HARDWARE, cell.cards)
        self._search = DaySearch(self._catalogue(START_S[0]), self._budget, self._values)

    def figures(self) -> Figures:
        best = [self._search.best(window) for window in self._loads]
        one_type = [self._search.one_type(window) for window in self._loads]
        static = best_of_day((*best, *one_type), self._loads, self._values)
        alike = best_of_day(one_type, self._loads, self._values)
        found = {STATIC: self._steady(static)}
        if self._cell.cards in CARDS:
            found |= self._others(static, alike) | {ORACLE: self._told(by_window(best), self._hours_of(best), [])}
        return {"systems": found, "static": dict(static), "requests": self._requests()}

    def _others(self, static: DayPlan, alike: DayPlan) -> dict[str, Figures]:
        found = {
            ONE_TYPE: self._steady(alike),
            LATENESS: self._scaled(alike, by_lateness(self._values)),
            LOAD: self._followed(alike),
        }
        return found | {n: self._replanned(static, each) for n, each in zip(REPLANNED, START_S, strict=True)}

    def _catalogue(self, start_s: float) -> Catalogue:
        kinds = [kind for pool in dict.fromkeys(self._pools.values()) for kind in kinds_of(pool)]
        return Catalogue(tuple(replace(kind, start_s=start_s) for kind in kinds))

    def _fleet(self, start_s: float) -> Orchestrated:
        return Orchestrated(self._catalogue(start_s), self._cell.cards)

    def _steady(self, plan: DayPlan) -> Figures:
        fleet = self._fleet(START_S[0])
        fleet.begin(counts_of(plan))
        return self._told(fleet.serving(self._pools), fleet.card_hours(), [])

    def _scaled(self, plan: DayPlan, wanted: Wanted) -> Figures:
        fleet = self._fleet(START_S[0])
        ordered_s = scaled_day(fleet, plan, self._loads, wanted)
        return self._told(fleet.serving(self._pools), fleet.card_hours(), ordered_s)

    def _followed(self, plan: DayPlan) -> Figures:
        """Follows the load with the target that keeps the most of the day on time, by the sample."""
        most_rps = rates_kept(plan, self._loads, self._values)

        def kept(target: float) -> float:
            fleet = self._fleet(START_S[0])
            scaled_day(fleet, plan, self._loads, by_load(most_rps, target))
            return sum(ok for _, ok in hourly_of(fleet.serving(self._pools), self._loads, self._values, SAMPLE))

        return self._scaled(plan, by_load(most_rps, max(TARGETS, key=kept)))

    def _replanned(self, plan: DayPlan, start_s: float) -> Figures:
        fleet = self._fleet(start_s)
        fleet.begin(counts_of(plan))
        catalogue = self._catalogue(start_s)
        day = ReplannedDay(catalogue, self._budget, self._loads, self._values, self._search, fleet)
        ordered_s = day.run()
        return self._told(fleet.serving(self._pools), fleet.card_hours(), ordered_s)

    def _told(self, pieces: Pieces, card_hours: float, ordered_s: Sequence[float]) -> Figures:
        kept = list(pieces)
        hours = [
            [on_time for _, on_time in hourly_of(iter(kept), self._loads, self._values, seed)]
            for seed in range(1, self._cell.seeds + 1)
        ]
        return {"on_time": hours, "card_hours": card_hours, "ordered_s": list(ordered_s)}

    def _requests(self) -> list[float]:
        whole: dict[str, EngineNames] = dict.fromkeys(self._pools.values(), ())
        return [requests for requests, _ in hourly_of(iter([(0.0, DAY_S, whole)]), self._loads, self._values, 1)]

    def _hours_of(self, plans: Sequence[DayPlan]) -> float:
        sizes = {kind.name: kind.gpus for kind in self._catalogue(START_S[0]).types}
        used = [sum(sizes[kind] for _, engines in plan for kind in engines) for plan in plans]
        return fmean(used) * DAY_S / HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class SeasonRow:
    """A system on a day and a number of cards: the share on time of each seed, hours of cards, how often engines were
    ordered, and by how many points the worst hour is off the best static plan, over all hours and over those in which
    engines were ordered or the hour after (None without any), as means over the seeds."""

    day: str
    cards: int
    system: str
    shares: list[float]
    card_hours: float
    orders: int
    worst_hour: float
    worst_own_hour: float | None


def rows_of(options: Options, found: Finished) -> list[SeasonRow]:
    rows = []
    for cards in (*CARDS, MORE_CARDS):
        for day in DAYS:
            figures = found.get(SeasonCell(day=day.name, cards=cards, seeds=options.seeds))
            if figures is not None:
                rows += [_row(day.name, cards, each, figures) for each in SYSTEMS if each in figures["systems"]]
    return rows


def _row(day: str, cards: int, system: str, figures: Mapping[str, Any]) -> SeasonRow:
    own, static, requests = figures["systems"][system], figures["systems"][STATIC], figures["requests"]
    behind = [
        100.0 * fmean(mine[hour] - other[hour] for mine, other in zip(own["on_time"], static["on_time"], strict=True))
        / requests[hour]
        for hour in range(len(requests))
    ]  # fmt: skip
    moved = {int(at_s // HOUR_S) + more for at_s in own["ordered_s"] for more in (0, 1)} & set(range(len(requests)))
    return SeasonRow(
        day=day, cards=cards, system=system, shares=[sum(hours) / sum(requests) for hours in own["on_time"]],
        card_hours=own["card_hours"], orders=len(own["ordered_s"]), worst_hour=min(behind),
        worst_own_hour=min((behind[hour] for hour in moved), default=None),
    )  # fmt: skip

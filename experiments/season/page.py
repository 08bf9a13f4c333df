"""Writes the page of the season: what re-planning is worth over recorded days."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.pages.goal import Goal
from experiments.pages.paired import paired
from experiments.plans.page import points
from experiments.season.days import DAYS, KAPPA, RATIO, SAMPLE_S
from experiments.season.orchestrated import DRAIN_S
from experiments.season.replanned import SEARCH_S
from experiments.season.rivals import EARLY, LATE, LOOK_S
from experiments.season.runs import (
    CARDS,
    MORE_CARDS,
    ORACLE,
    REPLANNED,
    STATIC,
    SYSTEMS,
    SeasonCell,
    SeasonRow,
    cells,
    compute,
    recordings_of,
    rows_of,
)
from experiments.study import Finished, Options, Study
from hmas_lab.sim.provenance import source_digest

GAIN, FEWER, EQUAL = 0.02, 0.10, 0.003
OF_ORACLE, BEHIND, MOST_STEPS = 0.7, 0.5, 20
OURS = REPLANNED[0]
ROOTS = ("hmas.sim.searched_plans", "hmas.meta.agent", "hmas_lab.placement.traces")


class SeasonTable:
    """The rows, by day, cards and system."""

    def __init__(self, rows: Sequence[SeasonRow]) -> None:
        self._rows = {(row.day, row.cards, row.system): row for row in rows}

    def get(self, day: str, cards: int, system: str) -> SeasonRow | None:
        return self._rows.get((day, cards, system))

    def share(self, day: str, cards: int, system: str) -> float | None:
        row = self.get(day, cards, system)
        return fmean(row.shares) if row else None

    def gain(self, day: str, cards: int, system: str) -> str:
        row, static = self.get(day, cards, system), self.get(day, cards, STATIC)
        return points(paired(row.shares, static.shares)) if row and static else ""

    def of_oracle(self, day: str, cards: int, system: str) -> float | None:
        """Returns the part of the way from the static plan to the best of each window."""
        mine, static, oracle = (self.share(day, cards, each) for each in (system, STATIC, ORACLE))
        if mine is None or static is None or oracle is None or oracle <= static:
            return None
        return (mine - static) / (oracle - static)


def goals_of(rows: Sequence[SeasonRow]) -> list[Goal]:
    table = SeasonTable(rows)
    found = [_worth_it(table, day.name, cards) for day in DAYS for cards in CARDS]
    own = [row for row in rows if row.system in REPLANNED]
    parts = [part for row in own if (part := table.of_oracle(row.day, row.cards, row.system)) is not None]
    words = f"at least {OF_ORACLE:g} of the way from the static plan to the best of each window"
    told = f"{min(parts):.2f} to {max(parts):.2f}" if parts else ""
    found.append(Goal(words, told, min(parts) >= OF_ORACLE if parts else None))
    worst = [row.worst_own_hour for row in own if row.worst_own_hour is not None]
    words = f"no hour in which it ordered engines, or the next, is {BEHIND:g} points or more below the static plan"
    found.append(Goal(words, f"{min(worst):+.1f} points" if worst else "", min(worst) > -BEHIND if worst else None))
    most = max((row.orders for row in own), default=0)
    return [*found, Goal(f"at most {MOST_STEPS} steps a day", str(most), most <= MOST_STEPS if own else None)]


def _worth_it(table: SeasonTable, day: str, cards: int) -> Goal:
    """Whether re-planning gains as much as `GAIN`, or saves as much as `FEWER` of the card hours of the static plan on
    the next larger number of cards, of which it keeps as much on time."""
    more = (*CARDS, MORE_CARDS)[CARDS.index(cards) + 1]
    words = f"{day}, {cards} cards: {100 * GAIN:g} points more, or {100 * FEWER:g} % fewer card hours at equal shares"
    own, static, larger = table.get(day, cards, OURS), table.get(day, cards, STATIC), table.get(day, more, STATIC)
    if own is None or static is None:
        return Goal(words, "", None)
    gain = paired(own.shares, static.shares)
    saves = 0.0
    if larger is not None and fmean(own.shares) >= fmean(larger.shares) - EQUAL:
        saves = 1.0 - own.card_hours / larger.card_hours
    told = f"{points(gain)}" + (f", {100 * saves:.0f} % fewer than static on {more}" if saves else "")
    return Goal(words, told, gain.mean >= GAIN or saves >= FEWER)


def page_of(rows: Sequence[SeasonRow], options: Options, found: Finished) -> Mapping[str, Any]:
    table = SeasonTable(rows)
    judged = [goal.met for goal in goals_of(rows)]
    gains = [
        paired(own.shares, static.shares).mean
        for day in DAYS
        for cards in CARDS
        if (own := table.get(day.name, cards, OURS)) and (static := table.get(day.name, cards, STATIC))
    ]
    return {
        "held": judged.count(True), "of": len(judged), "open": judged.count(None),
        "wanted": len(DAYS) * len((*CARDS, MORE_CARDS)),
        "gains": (100 * min(gains), 100 * max(gains)) if gains else None,
        "first": [
            (day.name, cards, _percent(table.share(day.name, cards, STATIC)),
             *(table.gain(day.name, cards, system) for system in SYSTEMS[2:]))
            for day in DAYS for cards in (*CARDS, MORE_CARDS) if table.get(day.name, cards, STATIC)
        ],
        "systems": SYSTEMS[2:],
        "hours": [
            (row.day, row.cards, row.system, f"{row.card_hours:.0f}", row.orders, f"{row.worst_hour:+.1f}",
             "" if row.worst_own_hour is None else f"{row.worst_own_hour:+.1f}")
            for row in rows if row.system != STATIC
        ],
        "static": [
            (day.name, cards, "; ".join(f"{pool}: {_told(own)}" for pool, own in figures["static"].items()))
            for day in DAYS for cards in (*CARDS, MORE_CARDS)
            if (figures := found.get(SeasonCell(day=day.name, cards=cards, seeds=options.seeds))) is not None
        ],
        "seeds": options.seeds, "kappa": KAPPA, "sample_s": SAMPLE_S, "ratio": RATIO, "search_s": SEARCH_S,
        "drain_s": DRAIN_S, "late": LATE, "early": EARLY, "look_s": LOOK_S,
    }  # fmt: skip


def _told(engines: Sequence[str]) -> str:
    return ", ".join(f"{engines.count(kind)} {kind}" for kind in dict.fromkeys(engines))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.3f}"


@cache
def _digest() -> str:
    return source_digest(ROOTS)


def code(cell: SeasonCell) -> str:
    """Returns the digest of the code on which a day depends."""
    return _digest()


STUDY: Study[SeasonCell, SeasonRow] = Study(
    name="season",
    about="What re-planning a fleet is worth over recorded days, beside a static plan and scaled replicas.",
    template=Path(__file__).with_name("season.md.j2"),
    takes=("out", "seeds", "processes", "cells", "data", "pages_only"),
    defaults=Options(seeds=3),
    cells=cells,
    compute=compute,
    given=lambda cell, options, found: (recordings_of(options),),
    code=code,
    rows=rows_of,
    goals=goals_of,
    values=page_of,
)

"""Writes the page of the second judge: what our plans and AISimulate's keep on time by AISimulate and by MeshSim, and
where the two agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.judge.judged_cells import (
    CELLS,
    JUDGED_S,
    ONE,
    OUTSIDE,
    SAMPLE,
    SAMPLE_S,
    SECONDS,
    TTFT_S,
    JudgedCell,
    JudgedPlan,
    kinds,
)
from experiments.judge.judged_runs import (
    AISIMULATE,
    ALIKE,
    APART,
    JUDGES,
    OURS,
    PROBE_TOKENS,
    PROBES,
    SHIPPED,
    SINGLE,
    OutsideSearch,
    PaceProbe,
    SecondJudgeCell,
    cells,
    code,
    compute,
    plans_of,
    run_of,
    searches_of,
)
from experiments.judge.outside import LIMITS
from experiments.pages.goal import Goal
from experiments.pages.paired import Paired, paired
from experiments.plans.page import points
from experiments.study import Finished, Options, Study

BETTER, WORSE, EQUAL = "ours", "theirs", "no sure difference"
DISAGREE = "they disagree"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """What a judge says of a plan: `shares` on time, one for each seed, and the mean share of each class. `engines`
    tells the plan, and `served` how it was served: with the layout of our order, else with its own classes."""

    cell: str
    classes: str
    plan: str
    engines: str
    served: str
    judge: str
    shares: list[float]
    by_class: list[float]

    @property
    def share(self) -> float:
        return fmean(self.shares)


def rows_of(options: Options, found: Finished) -> list[JudgedRow]:
    """Returns the rows of which at least one seed is finished."""
    rows = []
    for cell in CELLS:
        for name, plan in plans_of(cell, found).items():
            made = (_row(cell, name, plan, judge, options, found) for judge in JUDGES)
            rows += [row for row in made if row is not None]
    return rows


def _row(
    cell: JudgedCell, name: str, plan: JudgedPlan, judge: str, options: Options, found: Finished
) -> JudgedRow | None:
    runs = [run_of(cell, plan, judge, seed, found) for seed in options.numbers]
    done = [figures for run in runs if run is not None and (figures := found.get(run)) is not None]
    used = next((run.plan for run in runs if run is not None), plan)
    if not done:
        return None
    return JudgedRow(
        cell=cell.title, classes=cell.classes, plan=name, engines=plan.told, served=used.told, judge=judge,
        shares=[sum(each["on_time"]) / max(1, sum(each["requests"])) for each in done],
        by_class=[
            fmean(each["on_time"][number] / max(1, each["requests"][number]) for each in done)
            for number in range(len(cell.slos_s))
        ],
    )  # fmt: skip


def said(gain: Paired) -> str:
    """Returns what a judge says of a difference between ours and another plan."""
    if gain.noise:
        return EQUAL
    return BETTER if gain.mean > 0.0 else WORSE


def is_whole(gains: Mapping[str, Paired]) -> bool:
    """Tells whether every judge has judged, on two seeds at least."""
    return set(gains) == set(JUDGES) and all(gain.half < inf for gain in gains.values())


def agreed(gains: Mapping[str, Paired]) -> str | None:
    """Returns what all judges say, `DISAGREE` where they say different things; None until all have judged."""
    if not is_whole(gains):
        return None
    words = {said(gain) for gain in gains.values()}
    return words.pop() if len(words) == 1 else DISAGREE


class JudgedTable:
    """The rows, by cell, plan and judge."""

    def __init__(self, rows: Sequence[JudgedRow]) -> None:
        self._rows = {(row.cell, row.plan, row.judge): row for row in rows}

    def get(self, cell: JudgedCell, plan: str, judge: str) -> JudgedRow | None:
        return self._rows.get((cell.title, plan, judge))

    def share(self, cell: JudgedCell, plan: str, judge: str) -> str:
        row = self.get(cell, plan, judge)
        return f"{row.share:.3f}" if row else ""

    def gains(self, cell: JudgedCell, other: str) -> dict[str, Paired]:
        """Returns by each judge what our plan keeps on time beyond another one, over the seeds that both have."""
        pairs = {judge: (self.get(cell, OURS, judge), self.get(cell, other, judge)) for judge in JUDGES}
        return {
            judge: paired(mine.shares, theirs.shares)
            for judge, (mine, theirs) in pairs.items()
            if mine and theirs and len(mine.shares) == len(theirs.shares)
        }


def compared() -> Iterator[tuple[JudgedCell, str]]:
    """Yields each cell with each plan of AISimulate's for it."""
    for cell in CELLS:
        yield cell, SINGLE
        if cell.classes != ONE:
            yield cell, APART


def goals_of(rows: Sequence[JudgedRow]) -> list[Goal]:
    """Judges what was hoped for: with two classes more on time than AISimulate's plan under one SLA, and with one
    class, or against its plans for each class, not less, by every judge."""
    table, found = JudgedTable(rows), []
    for cell, other in compared():
        gains = table.gains(cell, other)
        words = {said(gain) for gain in gains.values()}
        more = cell.classes != ONE and other == SINGLE
        asked = "more" if more else "not less"
        met = words == {BETTER} if more else WORSE not in words
        told = "; ".join(f"{judge}: {points(gain)}" for judge, gain in gains.items())
        goal = f"{cell.title}: {asked} on time than {other} by every judge"
        found.append(Goal(goal, told, met if is_whole(gains) else None))
    return found


def page_of(rows: Sequence[JudgedRow], options: Options, found: Finished) -> dict[str, Any]:
    table = JudgedTable(rows)
    judged = [goal.met for goal in goals_of(rows)]
    verdicts = [(cell, other, table.gains(cell, other)) for cell, other in compared()]
    return {
        "held": judged.count(True), "missed": judged.count(False), "open": judged.count(None),
        "shares_header": ("cell", "plan", "engines (cards)", *JUDGES),
        "gains_header": ("cell", "against", *JUDGES, "all judges say"),
        "class_header": ("cell", "plan", *JUDGES, "classes under our order"),
        "claims": [_claim(cell, other, gains) for cell, other, gains in verdicts if agreed(gains) is not None],
        "shares": _shares(table),
        "gains": [
            (
                cell.title, other, *(points(gains[judge]) if judge in gains else "" for judge in JUDGES),
                agreed(gains) or "not measured yet",
            )
            for cell, other, gains in verdicts
        ],
        "by_class": _by_class(table), "paces": _paces(found), "ratios": sorted(float(row[-1]) for row in _paces(found)),
        "versions": _versions(found), "seeds": options.seeds,
        "seen": max((len(row.shares) for row in rows), default=0), "sample": SAMPLE, "sample_s": SAMPLE_S,
        "seconds": SECONDS, "judged_s": JUDGED_S, "ttft_s": TTFT_S, "probe": PROBE_TOKENS, "limits": LIMITS,
        "outside": OUTSIDE, "rates": sorted({(cell.name, cell.rate_rps) for cell in CELLS}),
        "kv": _kv(), "tried": _tried(found), "ours": OURS, "single": SINGLE, "apart": APART,
        "alike": ALIKE, "shipped": SHIPPED, "aisimulate": AISIMULATE,
    }  # fmt: skip


def _claim(cell: JudgedCell, other: str, gains: Mapping[str, Paired]) -> str:
    """Returns in a sentence what the judges say of our plan beside another."""
    words = {
        BETTER: "both simulators keep more on time with our plan",
        WORSE: "both simulators keep less on time with our plan",
        EQUAL: "both simulators see no difference beyond that between seeds",
        DISAGREE: "the simulators do not agree, so that nothing is claimed",
    }[str(agreed(gains))]
    return f"**{cell.title}**, against {other}: {words}."


def _shares(table: JudgedTable) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for cell in CELLS:
        for plan in (OURS, SINGLE, APART):
            if (row := table.get(cell, plan, AISIMULATE)) is not None:
                shares = (table.share(cell, plan, judge) for judge in JUDGES)
                found.append((cell.title, plan, row.engines, *shares))
    return found


def _by_class(table: JudgedTable) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for cell in CELLS:
        for plan in (OURS, SINGLE, APART):
            rows = [table.get(cell, plan, judge) for judge in JUDGES]
            if cell.classes != ONE and any(rows):
                shares = (" / ".join(f"{share:.2f}" for share in row.by_class) if row else "" for row in rows)
                found.append((cell.title, plan, *shares, rows[-1].served if rows[-1] else ""))
    return found


def _paces(found: Finished) -> list[tuple[str, ...]]:
    """Returns the time per token by both simulators, and AISimulate's as a part of ours."""
    rows: list[tuple[str, ...]] = []
    for cards, count in PROBES:
        if (both := found.get(PaceProbe(cards=cards, count=count))) is not None:
            ours_s, theirs_s = both["ours_s"], both["theirs_s"]
            rows.append((
                str(cards), str(count), f"{1000 * theirs_s:.1f}", f"{1000 * ours_s:.1f}", f"{theirs_s / ours_s:.2f}"
            ))  # fmt: skip
    return rows


def _outside(found: Finished) -> list[tuple[OutsideSearch, Mapping[str, Any]]]:
    asked = [search for cell in CELLS for search in searches_of(cell) if isinstance(search, OutsideSearch)]
    return [(search, done) for search in asked if (done := found.get(search)) is not None]


def _versions(found: Finished) -> list[str]:
    return sorted({str(done["version"]) for _, done in _outside(found)})


def _tried(found: Finished) -> list[int]:
    return sorted({len(done["shapes"]) for _, done in _outside(found)})


def _kv() -> list[tuple[str, str]]:
    return [(str(kind.gpus), f"{kind.kv_tokens:,}") for kind in kinds()]


STUDY: Study[SecondJudgeCell, JudgedRow] = Study(
    name="second-judge",
    about="Our plans beside those that AISimulate recommends, with one SLO class and with two, scored in its simulator "
    "and in ours. AISimulate is run in an environment of its own.",
    template=Path(__file__).with_name("second_judge.md.j2"),
    takes=("out", "seeds", "processes", "cells", "judge", "pages_only"),
    defaults=Options(seeds=8),
    cells=cells,
    compute=compute,
    given=lambda cell, options, found: (options.judge,),
    code=code,
    rows=rows_of,
    goals=goals_of,
    values=page_of,
)

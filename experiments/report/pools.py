"""Writes the page about layouts in pools of more than two engines, and of two kinds of engine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import length_bounds
from experiments.pools import (
    CASES,
    CHOSEN,
    CHUNK_TOKENS,
    LATE,
    LATE_S,
    LEARNT_S,
    LEAST,
    MIXED,
    SPLIT,
    PoolCase,
    PoolRow,
    cells,
    cells_of,
    compute,
    given,
    rows_of,
)
from experiments.regimes import LEVEL
from experiments.report.markdown import counted, verdict
from experiments.slo_drift import FILE, ORACLE, DriftRow, behind
from experiments.study import Finished, Options, Study, code_of_mesh, written

GOAL_BEHIND, GOAL_DRIFT = 1.0, 2.0  # points that the chosen layout may be behind the best static split, or the oracle


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolComparison:
    """The chosen layout of a pool at one load beside the same system mixed, the best static layout (mixed or split),
    and plain FCFS to the engine with the fewest outstanding requests."""

    chosen: PoolRow
    mixed: PoolRow
    best: PoolRow
    least: PoolRow
    late: PoolRow | None  # a split that came into force late
    unfinished: int  # static splits without a run, of which one may yet be the best

    @property
    def title(self) -> str:
        row = self.chosen
        return f"{row.pool}, {_workers(row.workers)}, {row.load:g} λ*"

    @property
    def behind(self) -> float:
        """Points behind the best static layout; negative if ahead."""
        return 100.0 * (self.best.goodput_rate - self.chosen.goodput_rate)

    @property
    def later_behind(self) -> float:
        """The same of the requests that came once a layout can have been chosen."""
        return 100.0 * (self.best.later - self.chosen.later)


def comparisons(rows: Iterable[PoolRow]) -> list[PoolComparison]:
    """Returns the comparison of each pool and load of which all systems but some splits have rows."""
    by: dict[tuple[str, int, float], list[PoolRow]] = {}
    for row in rows:
        by.setdefault((row.pool, row.workers, row.load), []).append(row)
    wanted = {
        (case.name, case.workers): {cell.name for cell in cells_of(case, (1,)) if cell.system == SPLIT}
        for case in CASES
    }
    found = []
    for group in by.values():
        named = {row.system: row for row in group}
        if {CHOSEN, MIXED, LEAST} <= named.keys():
            static = [row for row in group if row.system == MIXED or row.system.startswith(SPLIT)]
            best = max(static, key=lambda row: row.goodput_rate)
            found.append(
                PoolComparison(
                    chosen=named[CHOSEN],
                    mixed=named[MIXED],
                    best=best,
                    least=named[LEAST],
                    late=next((row for row in group if row.system.startswith(LATE)), None),
                    unfinished=len(wanted[best.pool, best.workers] - named.keys()),
                )
            )
    return found


def page_of(rows: Sequence[PoolRow], options: Options, found: Finished) -> dict[str, Any]:
    partly = any(row.seeds < options.seeds for row in rows)
    compared = comparisons(rows)
    runs = [found.get(cell) for case in CASES for cell in cells_of(case, options.numbers)]
    told = {
        "layouts": "".join(_layout_verdict(c) for c in compared),
        "gains": "".join(_gain_verdict(c) for c in compared if len(_case(c).kinds) > 1 and _case(c).slowness == 1.0),
        "slow": "".join(_slow_verdict(c) for c in compared if _case(c).slowness > 1.0),
        "esg": "".join(_esg_verdict(c) for c in compared if _case(c).slowness == 1.0),
        "drift": _drift_verdict(written(DriftRow, options.out / FILE)),
    }
    return {
        "chunk_tokens": CHUNK_TOKENS, "seconds": sorted({case.seconds for case in CASES}), "seeds": options.seeds,
        "bounds": length_bounds.told(runs), "learnt_s": LEARNT_S, "late_s": LATE_S,
        "capacities": list(_capacities(found).items()),
        **told, **counted("".join(told.values())),
        "comparisons": [_comparison(c) for c in compared], "missing": runs.count(None), "partly": partly,
    }  # fmt: skip


def _case(c: PoolComparison) -> PoolCase:
    return next(case for case in CASES if case.name == c.chosen.pool)


def _capacities(store: Finished) -> dict[str, str]:
    def told(case: PoolCase) -> str:
        found = store.get(case.capacity)
        return f"{case.times * found['rate_rps']:.2f}" if found else "not measured"

    return {case.name: told(case) for case in CASES if case.slowness == 1.0}


def _layout_verdict(c: PoolComparison) -> str:
    numbers = f"{c.chosen.goodput_rate:.3f} beside {c.best.goodput_rate:.3f} of {c.best.system}"
    why = _why_behind(c) if c.behind > GOAL_BEHIND else ""
    claim = f"{c.title}: at least the best static layout less {GOAL_BEHIND:g} point"
    return verdict(claim, *_so_far(c, not why, numbers), why)


def _so_far(c: PoolComparison, holds: bool, numbers: str) -> tuple[bool | None, str]:
    """Returns a verdict on the best static layout with its numbers: none where a run to come might overturn it."""
    return (None, f"{numbers}; {c.unfinished} splits are not run") if holds and c.unfinished else (holds, numbers)


def _why_behind(c: PoolComparison) -> str:
    where = (
        ", so the distance is from the time before a layout is chosen"
        if c.later_behind <= GOAL_BEHIND
        else f". Chosen by then, in the first seed: {c.chosen.layout}"
    )
    after = f"of the requests after the first {LEARNT_S:g} s {c.later_behind:.1f}"
    told = f"It is {c.behind:.1f} points behind, {after}{where}."
    if c.late is None:
        return told
    return told + (
        f" A pool that is mixed for {LATE_S:g} s and has {c.late.system.removeprefix('late-')} from then on reaches "
        f"{c.late.goodput_rate:.3f}, and {c.late.later:.3f} after {LEARNT_S:g} s (ours {c.chosen.later:.3f})."
    )


def _gain_verdict(c: PoolComparison) -> str:
    numbers = f"{c.chosen.goodput_rate:.3f} beside {c.least.goodput_rate:.3f} and {c.best.goodput_rate:.3f}"
    holds = 100.0 * (c.chosen.goodput_rate - max(c.least.goodput_rate, c.best.goodput_rate)) > LEVEL
    claim = (
        f"{c.title}: beats the fewest outstanding requests and the best static assignment of classes by more than "
        f"{LEVEL:g} points"
    )
    return verdict(claim, *_so_far(c, holds, numbers))


def _slow_verdict(c: PoolComparison) -> str:
    points = 100.0 * (c.chosen.goodput_rate - c.least.goodput_rate)
    numbers = f"{c.chosen.goodput_rate:.3f} beside {c.least.goodput_rate:.3f}, {points:+.1f} points"
    return verdict(
        f"{c.title}: beats the fewest outstanding requests by more than {LEVEL:g} points", points > LEVEL, numbers
    )


def _esg_verdict(c: PoolComparison) -> str:
    ours, least = c.chosen, c.least
    numbers = f"{ours.esg:.0f} beside {least.esg:.0f} per s"
    points = 100.0 * (ours.goodput_rate - least.goodput_rate)
    why = (
        f"It is {points:+.1f} points of goodput; `HMAS_OBJECTIVE=tokens` is the operator's switch that plans for ESG. "
        f"Requests that were not on time bring {least.esg_late:.0f} of FCFS's and {ours.esg_late:.0f} of ours, those "
        f"on time {least.esg - least.esg_late:.0f} and {ours.esg - ours.esg_late:.0f}."
    )
    return verdict(f"{c.title}: ESG at least that of plain FCFS", ours.esg >= least.esg, numbers, why)


def _drift_verdict(rows: Sequence[DriftRow]) -> str:
    claim = (
        "SLOs that drift inside a run, on [the page of two engines](regimes.md): within "
        f"{GOAL_DRIFT:g} points of an oracle that splits anew at once"
    )
    if not rows:
        return verdict(claim, None, "no run is there")
    named = {row.system: row for row in rows}
    ours, oracle, mixed = named[CHOSEN], named[ORACLE], named[MIXED]
    why = (
        f"It loses {100 * (oracle.first_half - ours.first_half):.1f} points in the first half and "
        f"{100 * (oracle.second_half - ours.second_half):.1f} in the second; a pool that is always mixed has "
        f"{mixed.first_half:.3f} and {mixed.second_half:.3f} there, ours {ours.first_half:.3f} and "
        f"{ours.second_half:.3f}."
    )
    return verdict(claim, behind(rows) <= GOAL_DRIFT, f"{behind(rows):.1f} points behind, {ours.seeds} seeds", why)


def _comparison(c: PoolComparison) -> tuple[str, ...]:
    gain, later = 100.0 * (c.chosen.goodput_rate - c.mixed.goodput_rate), -c.later_behind
    return (
        c.chosen.pool, _workers(c.chosen.workers), f"{c.chosen.load:g}", f"{c.least.goodput_rate:.3f}",
        f"{c.mixed.goodput_rate:.3f}", f"{c.chosen.goodput_rate:.3f}", f"{gain:+.1f}",
        f"{c.best.system} {c.best.goodput_rate:.3f}", f"{-c.behind:+.1f}", f"{later:+.1f}",
    )  # fmt: skip


def _workers(number: int) -> str:
    return "one worker" if number == 1 else f"{number} workers"


STUDY = Study(
    name="pools",
    about="Compares the layout that the controller chooses with static ones in pools of one, three and eight engines, "
    "behind one worker and behind one an engine, and in pools of two kinds of engine. It takes about forty minutes of "
    "one core, and tells what `regimes` found of SLOs that drift.",
    defaults=Options(cells=Path("out/pool-cells")),
    cells=cells,
    compute=compute,
    given=given,
    code=code_of_mesh,
    rows=rows_of,
    values=page_of,
)

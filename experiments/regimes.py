"""Where a layout pays: a pool of two engines mixed, split by hand at several TPOT SLOs, and laid out by the controller,
where TPOT is short and where compute is, and where the SLOs drift inside a run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from experiments import length_bounds, slo_drift
from experiments.report.in_force import in_force_of
from experiments.report.markdown import counted, verdict
from experiments.slo_drift import EASIER, HALF_S, DriftCell, DriftRow, behind
from experiments.study import Figures, Finished, Options, Study, code_of_mesh, written
from hmas_lab.sim.cells import Cell, code_of
from hmas_lab.sim.cells import compute as simulate
from hmas_lab.sim.sources import WorkloadSpec
from hmas_lab.sim.systems import HMAS

WORKLOAD = WorkloadSpec(kind="mix", duration_s=300.0, stated=True)
CHUNK_TOKENS = 1024
CUTS_MS = (90, 100, 111, 124, 134)  # of the TPOT SLOs of `mix`, which lie between 56 and 180 ms
FCFS, OURS, PLUGIN = "fixed-fcfs", "hmas-mixed", "hmas-plugin-mixed"
CHOSEN = {"hmas": OURS, "hmas-plugin": PLUGIN}  # each with the same system always mixed
LEVEL = 0.3  # points; less is called level
BEHIND = 1.0  # points that the chosen layout may be behind the best static split
AT, LEAST = 1.6, {"hmas": 0.84, "hmas-plugin": 0.89}  # goodput rates to be reached at that load where TPOT is short


@dataclass(frozen=True, slots=True)
class RegimeSetup:
    """A machine on which one thing is short. `splits` are the static splits of each mixed system."""

    name: str
    profile: str
    loads: tuple[float, ...]
    splits: dict[str, tuple[str, ...]]

    @property
    def systems(self) -> tuple[str, ...]:
        chosen = tuple(system for system, mixed in CHOSEN.items() if mixed in self.splits)
        return (*chosen, *self.splits, *(split for splits in self.splits.values() for split in splits))


REGIMES = (
    RegimeSetup(
        "TPOT short",
        "llama2-70b-a100x4",
        (1.6, 1.0, 1.2, 1.4),
        {
            FCFS: tuple(f"fcfs-split-{cut_ms}" for cut_ms in CUTS_MS),
            OURS: tuple(f"split-{cut_ms}" for cut_ms in CUTS_MS),
            PLUGIN: tuple(f"plugin-split-{cut_ms}" for cut_ms in CUTS_MS),
        },
    ),
    RegimeSetup(
        "compute short", "qwen3-32b-h100x2", (1.4, 1.0, 1.2, 1.6), {OURS: ("split-111", "split-124"), FCFS: ()}
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeRow:
    """What one system reached at one load, in λ*: means over `seeds`; `goodput_sd` is None for a single seed, and
    `share_of_bound` where no bound was computed."""

    regime: str
    profile: str
    workload: str
    load: float
    system: str
    goodput_rate: float
    goodput_sd: float | None
    esg: float
    ttft_p50: float
    share_of_bound: float | None
    seeds: int


def cells_of(regime: RegimeSetup, load: float, system: str, seeds: Iterable[int]) -> list[Cell]:
    return [
        Cell(
            kind="run",
            profile=regime.profile,
            engines=2,
            workload=WORKLOAD,
            load=load,
            seed=seed,
            system=system,
            chunk_tokens=CHUNK_TOKENS,
        )
        for seed in seeds
    ]


def cells(options: Options, found: Finished) -> Iterator[Sequence[Cell | DriftCell]]:
    """Yields all runs, then their bounds, in batches of one seed and load each, those loads that each regime names
    first before the others, so that an interrupted experiment has some seeds of all systems; and then the drift."""
    ranked = [(place, regime, load) for regime in REGIMES for place, load in enumerate(regime.loads)]
    settings = [(regime, load) for _, regime, load in sorted(ranked, key=lambda each: each[0])]
    for seed in options.numbers:
        for regime, load in settings:
            yield [c for s in regime.systems for c in cells_of(regime, load, s, (seed,))]
    yield [cell.bound for regime, load in settings for cell in cells_of(regime, load, OURS, options.numbers)]
    yield from slo_drift.cells(options, found)


def compute(cell: Cell | DriftCell, *rate_rps: float) -> Figures:
    return slo_drift.compute(cell) if isinstance(cell, DriftCell) else simulate(cell, *rate_rps)


def runs_of(options: Options) -> list[Cell]:
    """Returns the runs of the page but those of the drift."""
    wanted = [
        (regime, load, system) for regime in REGIMES for load in sorted(regime.loads) for system in regime.systems
    ]
    return [cell for setting in wanted for cell in cells_of(*setting, options.numbers)]


def rows_of(options: Options, store: Finished) -> list[RegimeRow]:
    """Returns the rows of all systems of which at least one run is finished."""
    rows = []
    for regime in REGIMES:
        for load in sorted(regime.loads):
            for system in regime.systems:
                cells = cells_of(regime, load, system, options.numbers)
                found = [(run, store.get(cell.bound)) for cell in cells if (run := store.get(cell)) is not None]
                if not found:
                    continue
                scores = [run["score"] for run, _ in found]
                rates = [score["goodput_rate"] for score in scores]
                shares = [r / b["goodput_rate"] for r, (_, b) in zip(rates, found, strict=True) if b is not None]
                rows.append(
                    RegimeRow(
                        regime=regime.name, profile=regime.profile, workload=WORKLOAD.name, load=load, system=system,
                        goodput_rate=fmean(rates), goodput_sd=stdev(rates) if len(rates) > 1 else None,
                        esg=fmean(score["esg_rate"] for score in scores),
                        ttft_p50=fmean(score["ttft_p50_s"] for score in scores),
                        share_of_bound=fmean(shares) if len(shares) == len(rates) else None, seeds=len(rates),
                    )
                )  # fmt: skip
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutComparison:
    """The chosen layout beside the same system mixed and beside the best static split, in points of goodput rate."""

    regime: str
    load: float
    system: str
    mixed: float
    chosen: float
    best: str
    best_rate: float

    @property
    def gain(self) -> float:
        return 100.0 * (self.chosen - self.mixed)

    @property
    def behind(self) -> float:
        return 100.0 * (max(self.best_rate, self.mixed) - self.chosen)


def comparisons(rows: Sequence[RegimeRow]) -> list[LayoutComparison]:
    by = {(row.regime, row.load, row.system): row.goodput_rate for row in rows}
    found = []
    for regime in REGIMES:
        for load in sorted(regime.loads):
            for chosen, mixed in CHOSEN.items():
                splits = [s for s in regime.splits.get(mixed, ()) if (regime.name, load, s) in by]
                if not splits or not {(regime.name, load, s) for s in (chosen, mixed)} <= by.keys():
                    continue
                best = max(splits, key=lambda split: by[regime.name, load, split])
                found.append(
                    LayoutComparison(
                        regime=regime.name,
                        load=load,
                        system=chosen,
                        mixed=by[regime.name, load, mixed],
                        chosen=by[regime.name, load, chosen],
                        best=best,
                        best_rate=by[regime.name, load, best],
                    )
                )
    return found


def page_of(rows: Sequence[RegimeRow], options: Options, found: Finished) -> dict[str, Any]:
    drift = slo_drift.rows_of(found) or written(DriftRow, options.out / slo_drift.FILE)
    runs, goals = [found.get(cell) for cell in runs_of(options)], "".join(_goals(rows))
    return {
        "seconds": WORKLOAD.duration_s, "chunk_tokens": CHUNK_TOKENS, "seeds": options.seeds,
        "bounds": length_bounds.told(map(length_bounds.of_cell, runs)),
        "capacities": _capacities(options, found), "goals": goals, **counted(goals),
        "verdicts": [_verdict(c) for c in comparisons(rows)], "missing": runs.count(None),
        "drift": drift, "drift_rows": [_drift_cells(row) for row in drift],
        "behind": behind(drift) if drift else 0.0, "drift_seeds": drift[0].seeds if drift else 0,
        "in_force": _in_force(options, found), "half_s": HALF_S, "easier": EASIER,
    }  # fmt: skip


def _capacities(options: Options, found: Finished) -> str:
    told = []
    for regime in REGIMES:
        capacity = found.get(cells_of(regime, regime.loads[0], HMAS, (1,))[0].capacity)
        told.append(f"{regime.profile} {capacity['rate_rps']:.2f}" if capacity else f"{regime.profile} not measured")
    return "; ".join(told)


def _in_force(options: Options, found: Finished) -> str:
    """Returns what was in force in the runs of the systems that choose, by regime and load; empty without any."""
    runs: dict[str, list[Figures]] = {}
    for regime in REGIMES:
        for load in sorted(regime.loads):
            for system in LEAST:
                for cell in cells_of(regime, load, system, options.numbers):
                    if (run := found.get(cell)) and length_bounds.of_cell(run):
                        runs.setdefault(f"{system}, {regime.name}, {load:g} λ*", []).append(run)
    return in_force_of(runs) if runs else ""


def _goals(rows: Sequence[RegimeRow]) -> list[str]:
    """Returns what was to be reached, with what was."""
    by = {(row.regime, row.load, row.system): row for row in rows}
    told = []
    for c in comparisons(rows):
        where, rates = f"{c.regime}, {c.load:g} λ*, {c.system}", f"{c.chosen:.3f} beside {c.best_rate:.3f} of {c.best}"
        if c.regime == REGIMES[0].name:
            claim = f"{where}: at least the best static split less {BEHIND:g} point"
            told.append(verdict(claim, 100.0 * (c.best_rate - c.chosen) <= BEHIND, rates))
        else:
            claim = f"{where}: no more than {LEVEL:g} points below the pool that is always mixed"
            told.append(verdict(claim, c.gain >= -LEVEL, f"{c.chosen:.3f} beside {c.mixed:.3f}"))
        if c.regime == REGIMES[0].name and c.load == AT:
            told.append(
                verdict(f"{where}: at least {LEAST[c.system]:g}", c.chosen >= LEAST[c.system], f"{c.chosen:.3f}")
            )
        ours, fcfs = by[c.regime, c.load, c.system], by.get((c.regime, c.load, FCFS))
        splits = {
            s: row
            for (regime, load, s), row in by.items()
            if (regime, load) == (c.regime, c.load) and s.startswith("fcfs-split")
        }
        if splits and c.system == HMAS:
            best = max(splits, key=lambda s: splits[s].goodput_rate)
            least = splits[best].goodput_rate
            claim = f"{where}: at least the best static split under FCFS less {BEHIND:g} point"
            told.append(
                verdict(claim, 100.0 * (least - c.chosen) <= BEHIND, f"{c.chosen:.3f} beside {least:.3f} of {best}")
            )
        if fcfs is not None:
            points = 100.0 * (ours.goodput_rate - fcfs.goodput_rate)
            told.append(
                verdict(
                    f"{where}: ESG at least plain FCFS's",
                    ours.esg >= fcfs.esg,
                    f"{ours.esg:.0f} beside {fcfs.esg:.0f} per s",
                    f"That is {100.0 * (ours.esg / fcfs.esg - 1.0):.1f} %, for {points:+.1f} points of goodput; "
                    "`HMAS_OBJECTIVE=tokens` is the operator's switch that plans for ESG.",
                )
            )
    return told


def _verdict(c: LayoutComparison) -> tuple[str, ...]:
    def points(value: float) -> str:
        return "level" if abs(value) < LEVEL else f"{value:+.1f}"

    best = f"{c.best} {c.best_rate:.3f}"
    rates = f"{c.mixed:.3f}", f"{c.chosen:.3f}"
    return c.regime, f"{c.load:g}", c.system, *rates, points(c.gain), best, points(-c.behind)


def _drift_cells(row: DriftRow) -> tuple[str, ...]:
    rate = f"{row.goodput_rate:.3f} ± {row.goodput_sd:.3f}"
    return row.system, rate, f"{row.first_half:.3f}", f"{row.second_half:.3f}", f"{row.esg:.0f}", f"{row.ttft_p50:.2f}"


def _code(cell: Cell | DriftCell) -> str:
    return code_of_mesh(cell) if isinstance(cell, DriftCell) else code_of(cell)


STUDY = Study(
    name="regimes",
    about="Compares a pool that all requests share with static splits by TPOT SLO and with the layout that the "
    "controller chooses, where TPOT is short, where compute is, and where the SLOs drift inside a run.",
    cells=cells,
    compute=compute,
    code=_code,
    rows=rows_of,
    values=page_of,
    also=lambda rows, options, found: {slo_drift.FILE: [asdict(row) for row in slo_drift.rows_of(found)] or None},
)

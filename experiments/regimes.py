"""Where a layout pays: a pool of two engines mixed, split by hand at several TPOT SLOs, and laid out by the controller,
where TPOT is short and where compute is. Pure but for the store of runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from hmas.sim.cells import Cell, CellStore
from hmas.sim.sources import WorkloadSpec

WORKLOAD = WorkloadSpec(kind="mix", duration_s=300.0, stated=True)
CHUNK_TOKENS = 1024
CUTS_MS = (90, 100, 111, 124, 134)  # of the TPOT SLOs of `mix`, which lie between 56 and 180 ms
FCFS, OURS, PLUGIN = "fixed-fcfs", "hmas-mixed", "hmas-plugin-mixed"
CHOSEN = {"hmas": OURS, "hmas-plugin": PLUGIN}  # each with the same system always mixed


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


def batches(seeds: Sequence[int]) -> list[list[Cell]]:
    """Returns all runs, then their bounds, in batches of one seed and load each, those loads that each regime names
    first before the others, so that an interrupted experiment has some seeds of all systems."""
    ranked = [(place, regime, load) for regime in REGIMES for place, load in enumerate(regime.loads)]
    settings = [(regime, load) for _, regime, load in sorted(ranked, key=lambda each: each[0])]
    runs = [
        [c for s in regime.systems for c in cells_of(regime, load, s, (seed,))]
        for seed in seeds
        for regime, load in settings
    ]
    bounds = [[cell.bound for cell in cells_of(regime, load, OURS, seeds)] for regime, load in settings]
    return [*runs, *bounds]


def rows_of(store: CellStore, seeds: Sequence[int]) -> list[RegimeRow]:
    """Returns the rows of all systems of which at least one run is finished."""
    rows = []
    for regime in REGIMES:
        for load in sorted(regime.loads):
            for system in regime.systems:
                cells = cells_of(regime, load, system, seeds)
                found = [(run, store.get(cell.bound)) for cell in cells if (run := store.get(cell)) is not None]
                if not found:
                    continue
                scores = [run["score"] for run, _ in found]
                rates = [score["goodput_rate"] for score in scores]
                shares = [r / b["goodput_rate"] for r, (_, b) in zip(rates, found, strict=True) if b is not None]
                rows.append(
                    RegimeRow(
                        regime=regime.name,
                        profile=regime.profile,
                        workload=WORKLOAD.name,
                        load=load,
                        system=system,
                        goodput_rate=fmean(rates),
                        goodput_sd=stdev(rates) if len(rates) > 1 else None,
                        esg=fmean(score["esg_rate"] for score in scores),
                        ttft_p50=fmean(score["ttft_p50_s"] for score in scores),
                        share_of_bound=fmean(shares) if len(shares) == len(rates) else None,
                        seeds=len(rates),
                    )
                )
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

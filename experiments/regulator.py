"""What each part of Statera is worth where memory, time per token, compute or none is short: the same mesh on the same
requests, with one part at a time. Pure but for the store of runs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from experiments.worth import Paired, paired
from hmas.sim.cells import Cell, CellStore
from hmas.sim.sources import WorkloadSpec
from hmas.sim.systems import FIXED_N_RUN, HMAS

CHUNK_TOKENS = 1024
FROZEN = "hmas-frozen"
PARTS = ("hmas-calibration", "hmas-loops", "hmas-fixed-band")
SYSTEMS = (HMAS, FROZEN, *PARTS)
FIXED = tuple(f"nrun-{n}" for n in FIXED_N_RUN)
SEARCH_SEEDS = (101, 102)  # on which the best fixed N_run is searched; its row is of the other systems' seeds
MEMORY = "memory short"
LEAST_COST = 2.5  # points that freezing should cost in the mean where memory is short
TRACE = "traces/mooncake_fast25_conversation.csv.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRegime:
    """A machine and a workload of which one thing is short. `kv_blocks` cuts the engine's memory."""

    name: str
    profile: str = "qwen3-32b-h100x2"
    kind: str = "mix"
    file: str = ""
    kv_blocks: int | None = None
    loads: tuple[float, ...] = (1.1, 1.4, 2.0)


REGIMES = (
    LoadRegime(name=MEMORY, kv_blocks=3000),
    LoadRegime(name=MEMORY, kind="burst", kv_blocks=2500),
    LoadRegime(name=MEMORY, kind="drift", kv_blocks=2500),
    LoadRegime(name="TPOT short", profile="llama2-70b-a100x4"),
    LoadRegime(name="compute short"),
    LoadRegime(name="long contexts", kind="trace", file=TRACE),
)


def cells_of(
    regime: LoadRegime, load: float, system: str, seeds: Iterable[int], seconds: float, data: Path | None
) -> list[Cell]:
    file = str(data / regime.file) if data and regime.file else ""
    workload = WorkloadSpec(kind=regime.kind, duration_s=seconds, stated=True, file=file)
    return [
        Cell(
            kind="run",
            profile=regime.profile,
            engines=1,
            workload=workload.labelled(data),
            load=load,
            seed=seed,
            system=system,
            chunk_tokens=CHUNK_TOKENS,
            kv_blocks=regime.kv_blocks,
        )
        for seed in seeds
    ]


def settings(data: Path | None) -> Iterator[tuple[LoadRegime, float]]:
    """Yields every regime and load; those of recorded traces only with data."""
    return ((regime, load) for regime in REGIMES if data or not regime.file for load in regime.loads)


def all_cells(seeds: Sequence[int], seconds: float, data: Path | None) -> list[Cell]:
    return [
        cell
        for regime, load in settings(data)
        for system in SYSTEMS
        for cell in cells_of(regime, load, system, seeds, seconds, data)
    ]


def search_cells(seconds: float, data: Path | None) -> list[Cell]:
    return [
        cell
        for regime, load in settings(data)
        for system in FIXED
        for cell in cells_of(regime, load, system, SEARCH_SEEDS, seconds, data)
    ]


def best_fixed(store: CellStore, regime: LoadRegime, load: float, seconds: float, data: Path | None) -> str | None:
    """Returns the fixed N_run, as a system, with the highest mean goodput rate over the seeds of the search; None while
    the search is not finished."""
    means: dict[str, float] = {}
    for system in FIXED:
        runs = [store.get(cell) for cell in cells_of(regime, load, system, SEARCH_SEEDS, seconds, data)]
        if any(run is None for run in runs):
            return None
        means[system] = fmean(run["score"]["goodput_rate"] for run in runs if run is not None)
    return max(means, key=lambda system: means[system])


def winner_cells(store: CellStore, seeds: Sequence[int], seconds: float, data: Path | None) -> list[Cell]:
    """Returns the runs of each setting's best fixed N_run."""
    found = ((regime, load, best_fixed(store, regime, load, seconds, data)) for regime, load in settings(data))
    return [
        cell
        for regime, load, system in found
        if system is not None
        for cell in cells_of(regime, load, system, seeds, seconds, data)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegulatorRow:
    """What one system reached in one regime at one load (in λ*), means over the seeds, whose goodput rates are
    `by_seed`. `behind_full` is the full mesh's goodput rate less this one's, seed by seed."""

    regime: str
    profile: str
    workload: str
    kv_blocks: int | None
    load: float
    system: str
    goodput_rate: float
    esg: float
    ttft_p50: float
    preemptions: float
    outgrown: float | None
    by_seed: tuple[float, ...]
    behind_full: Paired


def rows_of(store: CellStore, seeds: Sequence[int], seconds: float, data: Path | None) -> list[RegulatorRow]:
    """Returns the rows of every setting whose runs are all finished."""
    rows: list[RegulatorRow] = []
    for regime, load in settings(data):
        fixed = best_fixed(store, regime, load, seconds, data)
        if fixed is None:
            continue
        runs = {s: [store.get(c) for c in cells_of(regime, load, s, seeds, seconds, data)] for s in (*SYSTEMS, fixed)}
        found = {system: [run for run in each if run is not None] for system, each in runs.items()}
        if any(len(each) < len(seeds) for each in found.values()):
            continue
        rates = {system: tuple(run["score"]["goodput_rate"] for run in each) for system, each in found.items()}
        for system, each in found.items():
            tallies = [run["run"]["coverage"]["total"] for run in each]
            admitted = sum(tally["admitted"] for tally in tallies)
            rows.append(
                RegulatorRow(
                    regime=regime.name,
                    profile=regime.profile,
                    workload=cells_of(regime, load, system, seeds, seconds, data)[0].workload.name,
                    kv_blocks=regime.kv_blocks,
                    load=load,
                    system=system,
                    goodput_rate=fmean(rates[system]),
                    esg=fmean(run["score"]["esg_rate"] for run in each),
                    ttft_p50=fmean(run["score"]["ttft_p50_s"] for run in each),
                    preemptions=fmean(run["run"]["preemptions"] for run in each),
                    outgrown=sum(tally["outgrown"] for tally in tallies) / admitted if admitted else None,
                    by_seed=rates[system],
                    behind_full=paired(rates[HMAS], rates[system]),
                )
            )
    return rows

"""What each part of Statera is worth where memory, time per token, compute or none is short: the same mesh on the same
requests, without one part of it or with another at a time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from experiments.pages.paired import Paired, paired
from experiments.study import Figures, Finished, Options
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.sources import WorkloadSpec
from hmas_lab.sim.systems import FIXED_N_RUN, HMAS, PAPER

CHUNK_TOKENS = 1024
FROZEN, UNTIMED, MOVED = "hmas-frozen", "hmas-untimed", "hmas-moving"
PARTS = ("hmas-whole-bounds", "hmas-no-fence", UNTIMED, MOVED, "two-lane-shared", "two-lane-slots")
OTHERS = ("vllm", "sglang", "lightllm", "niyama", "dynamo", "llm-d")
SYSTEMS = (HMAS, FROZEN, *PARTS, *OTHERS)
FIXED = (*(f"nrun-{n}" for n in FIXED_N_RUN), UNTIMED)  # the last is the engine's own limit
# Table 2 of H-MAS: the published mesh without one component, in the regimes where memory or time per token is short.
TABLE_2 = (PAPER, "no-two-lane", "frozen-statera", "no-meta", "rules-cognition")
SEARCH_SEEDS = (101, 102)  # on which the best fixed N_run is searched; its row is of the other systems' seeds
SEARCH_S = 150.0
MEMORY = "memory short"
DRIFT = "drift"
LONG = "TPOT short for long"
MEMORY_AND_TPOT = "memory and TPOT short"
ABLATED = (MEMORY, LONG, MEMORY_AND_TPOT)  # regimes of `TABLE_2`, each at its first load
LEAST_COST = 2.5  # points that freezing should cost in the mean where memory is short
TRACE = "traces/mooncake_fast25_conversation.csv.gz"
PICTURED = (HMAS, UNTIMED, MOVED)  # systems whose regulation is drawn over time


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRegime:
    """A machine and a workload of which one thing is short. `kv_blocks` cuts the engine's memory. A run takes `least_s`
    at least: an engine whose answers take half a minute has only begun to fill up within the usual one."""

    name: str
    profile: str = "qwen3-32b-h100x2"
    kind: str = "mix"
    file: str = ""
    kv_blocks: int | None = None
    loads: tuple[float, ...] = (1.4, 1.1)
    least_s: float = 0.0


REGIMES = (
    LoadRegime(name=MEMORY, kv_blocks=3000),
    LoadRegime(name=MEMORY, kind="semantic", kv_blocks=3000),
    LoadRegime(name=MEMORY, kind="burst", kv_blocks=2500),
    LoadRegime(name="TPOT short", profile="llama2-70b-a100x4"),
    LoadRegime(name=LONG, profile="llama2-70b-a100x4", loads=(2.0, 1.4, 3.0), least_s=300.0),
    LoadRegime(name=MEMORY_AND_TPOT, profile="llama2-70b-a100x4", kv_blocks=1600),
    LoadRegime(name=DRIFT, kind="drift", kv_blocks=2500),
    LoadRegime(name="compute short"),
    LoadRegime(name="long contexts", kind="trace", file=TRACE),
)


def cells_of(
    regime: LoadRegime, load: float, system: str, seeds: Iterable[int], seconds: float, data: Path | None
) -> list[Cell]:
    file = str(data / regime.file) if data and regime.file else ""
    workload = WorkloadSpec(kind=regime.kind, duration_s=max(seconds, regime.least_s), stated=True, file=file)
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


def cells(options: Options, found: Finished) -> Iterator[Sequence[Cell]]:
    """Yields all runs and the searches, and then those of each setting's best fixed N_run."""
    yield [*all_cells(options), *search_cells(options)]
    yield winner_cells(options, found)


def all_cells(options: Options) -> list[Cell]:
    """Returns the runs of all systems but the fixed ones, seed by seed, so that an interrupted experiment has some
    seeds of every setting."""
    return [
        cell
        for seed in options.numbers
        for regime, load in settings(options.data)
        for system in SYSTEMS + (TABLE_2 if _ablated(regime, load) else ())
        for cell in cells_of(regime, load, system, (seed,), options.seconds, options.data)
    ]


def _ablated(regime: LoadRegime, load: float) -> bool:
    return regime.name in ABLATED and load == regime.loads[0]


def search_cells(options: Options) -> list[Cell]:
    return [
        cell
        for regime, load in settings(options.data)
        for system in FIXED
        for cell in cells_of(regime, load, system, SEARCH_SEEDS, SEARCH_S, options.data)
    ]


def best_fixed(store: Finished, regime: LoadRegime, load: float, data: Path | None) -> str | None:
    """Returns the fixed N_run, as a system, with the highest mean goodput rate over the seeds of the search; None while
    the search is not finished."""
    means = search_means(store, regime, load, data)
    return max(means, key=means.__getitem__) if means else None


def search_means(store: Finished, regime: LoadRegime, load: float, data: Path | None) -> dict[str, float]:
    """Returns the mean goodput rate of each fixed N_run over the seeds of the search; nothing while it is not
    finished."""
    means: dict[str, float] = {}
    for system in FIXED:
        runs = [store.get(cell) for cell in cells_of(regime, load, system, SEARCH_SEEDS, SEARCH_S, data)]
        if any(run is None for run in runs):
            return {}
        means[system] = fmean(run["score"]["goodput_rate"] for run in runs if run is not None)
    return means


def searches(store: Finished, data: Path | None) -> dict[str, dict[str, float]]:
    """Returns the means of the finished searches by setting, in words."""
    return {
        f"{regime.name}, {regime.kind} at {load:g} λ*": means
        for regime, load in settings(data)
        if (means := search_means(store, regime, load, data))
    }


def winner_cells(options: Options, found: Finished) -> list[Cell]:
    """Returns the runs of each setting's best fixed N_run."""
    return [
        cell
        for regime, load in settings(options.data)
        if (system := best_fixed(found, regime, load, options.data)) is not None
        for cell in _own_cells(regime, load, system, options)
    ]


def _own_cells(regime: LoadRegime, load: float, system: str, options: Options) -> list[Cell]:
    return cells_of(regime, load, system, options.numbers, options.seconds, options.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegulatorRow:
    """What one system reached in one regime at one load (in λ*), means over the seeds, whose goodput rates are
    `by_seed`. `behind_full` is the full mesh's goodput rate less this one's, seed by seed. `best_fixed`: it has the
    fixed N_run that the search found best there."""

    regime: str
    profile: str
    workload: str
    kv_blocks: int | None
    load: float
    system: str
    goodput_rate: float
    goodput_sd: float | None
    esg: float
    ttft_p50: float
    preemptions: float
    outgrown: float | None
    by_seed: tuple[float, ...]
    behind_full: Paired
    best_fixed: bool = False


def rows_of(options: Options, store: Finished) -> list[RegulatorRow]:
    """Returns the rows of every setting, over the seeds that every system of it has finished; of one without such a
    seed there is none. The best fixed N_run has a row where it was found and has finished those seeds too."""
    rows: list[RegulatorRow] = []
    seeds = options.numbers
    for regime, load in settings(options.data):
        fixed = best_fixed(store, regime, load, options.data)
        runs = {
            system: dict(zip(seeds, map(store.get, _own_cells(regime, load, system, options)), strict=True))
            for system in (*SYSTEMS, *([fixed] if fixed else []))
        }
        common = [seed for seed in seeds if all(runs[system][seed] is not None for system in SYSTEMS)]
        if not common:
            continue
        found = {system: [run for seed in common if (run := each[seed]) is not None] for system, each in runs.items()}
        full = _rates(found[HMAS])
        for system, each in found.items():
            if len(each) < len(common):
                continue
            rates = _rates(each)
            tallies = [run["run"]["coverage"]["total"] for run in each if run["run"]["coverage"]]
            admitted = sum(tally["admitted"] for tally in tallies)
            rows.append(
                RegulatorRow(
                    regime=regime.name, profile=regime.profile, kv_blocks=regime.kv_blocks, load=load, system=system,
                    workload=_own_cells(regime, load, system, options)[0].workload.name,
                    goodput_rate=fmean(rates), goodput_sd=stdev(rates) if len(rates) > 1 else None,
                    esg=fmean(run["score"]["esg_rate"] for run in each),
                    ttft_p50=fmean(run["score"]["ttft_p50_s"] for run in each),
                    preemptions=fmean(run["run"]["preemptions"] for run in each),
                    outgrown=sum(tally["outgrown"] for tally in tallies) / admitted if admitted else None,
                    by_seed=rates, behind_full=paired(full, rates), best_fixed=system == fixed,
                )
            )  # fmt: skip
    return rows


def _rates(runs: Sequence[Figures]) -> tuple[float, ...]:
    return tuple(run["score"]["goodput_rate"] for run in runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """The published mesh without one component in one regime: goodput rate, and what the whole one has more, seed by
    seed."""

    regime: str
    workload: str
    load: float
    system: str
    goodput_rate: float
    behind_whole: Paired


def ablation_rows(options: Options, store: Finished) -> list[AblationRow]:
    """Returns the rows of Table 2 in each regime of `ABLATED`, over the seeds that all its systems have finished."""
    rows = []
    for regime, load in settings(options.data):
        if not _ablated(regime, load):
            continue
        runs = {s: list(map(store.get, _own_cells(regime, load, s, options))) for s in TABLE_2}
        whole = [n for n in range(options.seeds) if all(each[n] is not None for each in runs.values())]
        if not whole:
            continue
        rates = {s: _rates([run for n in whole if (run := each[n]) is not None]) for s, each in runs.items()}
        workload = _own_cells(regime, load, PAPER, options)[0].workload.name
        rows += [
            AblationRow(
                regime=regime.name, workload=workload, load=load, system=system, goodput_rate=fmean(own),
                behind_whole=paired(rates[PAPER], own),
            )
            for system, own in rates.items()
        ]  # fmt: skip
    return rows


def runs_of(store: Finished, cells: Iterable[Cell]) -> dict[str, list[dict[str, Any]]]:
    """Returns the finished runs of our systems."""
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        run = store.get(cell)
        if run is not None and run.get("run", {}).get("topologies"):
            found.setdefault(cell.system, []).append(run)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What the regulator did in one run: a row per two seconds of its engine, as in `hmas.sim.regulated`."""

    regime: LoadRegime
    load: float
    system: str
    rows: Sequence[dict[str, Any]]


def courses(options: Options, store: Finished) -> list[Course]:
    """Returns the first seed's courses of each regime at its first load."""
    found: list[Course] = []
    for regime in REGIMES:
        if regime.file and not options.data:
            continue
        for system in PICTURED:
            cell, *_ = _own_cells(regime, regime.loads[0], system, options)
            if (run := store.get(cell)) is not None:
                rows = [row for row in run["run"]["regulated"] if row["at_s"] <= max(options.seconds, regime.least_s)]
                found.append(Course(regime=regime, load=regime.loads[0], system=system, rows=rows))
    return found

"""TPOT SLOs that drift inside a run: how far is the layout that the controller chooses from an oracle that lays the
pool out anew at once? Pure but for the answers of perception, which are kept."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from experiments.study import Finished, Options
from hmas.contracts.control import INITIAL_TOPOLOGY, Split
from hmas.engine.core.profile import builtin_profile
from hmas.laws.scoring import Settlement, is_ok, score
from hmas.sim.perceived import FOLDER, perceived
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.stored import cell_key
from hmas_lab.sim.systems import HMAS, MESHES

PROFILE, ENGINES, RATE_RPS = "llama2-70b-a100x4", 2, 5.2  # 1.4 λ* of the mix there
HALF_S = 120.0
EASIER = 1.6  # by which each TPOT SLO is laxer in the second half
SEEDS = (1, 2, 3, 4, 5)
FILE = "slo-drift.json"
MIXED, ORACLE = "hmas-mixed", "oracle"
CUTS_MS = (100, 111, 124, 160, 178, 198)
STATIC = (MIXED, *(f"split-{cut_ms}" for cut_ms in CUTS_MS))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCell:
    """One run. The oracle's `first` and `second` are the static systems whose layouts it has in the halves."""

    system: str
    seed: int
    first: str = ""
    second: str = ""
    half_s: float = HALF_S
    rate_rps: float = RATE_RPS

    def key(self) -> str:
        return cell_key(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRow:
    """Means over so many seeds: of the whole run, and the goodput rate of each half's requests."""

    system: str
    seeds: int
    goodput_rate: float
    goodput_sd: float
    first_half: float
    second_half: float
    esg: float
    ttft_p50: float


def split_of(system: str) -> Split:
    """Returns the layout of a static system."""
    return Split() if system == MIXED else Split((int(system.removeprefix("split-")) / 1000.0,), (1, 1))


def compute(cell: DriftCell) -> dict[str, Any]:
    """Makes one run and returns its figures as plain data."""
    profile = builtin_profile(PROFILE)
    profile = replace(profile, limits=replace(profile.limits, max_num_batched_tokens=1024))
    spec = WorkloadSpec(kind="mix", duration_s=2 * cell.half_s, stated=True)
    workload = perceived(build(spec, cell.rate_rps, cell.seed, prompts=True), folder=FOLDER)
    rows = tuple(_drifted(offered, cell.half_s) for offered in workload.requests)
    workload = Workload("mix whose SLOs drift", rows, 2 * cell.half_s).fitting(profile)
    run = MeshSim(_setup(cell), profile, ENGINES, workload, cell.seed, cutoff_s=120.0).run()

    def rate(belongs: Callable[[Settlement], bool]) -> float:
        return fmean(is_ok(settlement) for settlement in run.settlements if belongs(settlement))

    return {
        "first_half": rate(lambda settlement: settlement.offered_s < cell.half_s),
        "second_half": rate(lambda settlement: settlement.offered_s >= cell.half_s),
        "goodput_rate": run.score.goodput_rate,
        "esg": run.score.esg_rate,
        "ttft_p50": score(run.settlements, 2 * cell.half_s).ttft_p50_s,
        "layouts": [(span.start_s, span.topology) for span in run.run.layouts],
    }


def _drifted(offered: OfferedRequest, half_s: float) -> OfferedRequest:
    if offered.request.arrival_s < half_s:
        return offered
    slo = replace(offered.slo, tpot_s=EASIER * offered.slo.tpot_s)
    return replace(offered, slo=slo, request=replace(offered.request, slo=slo))


def _setup(cell: DriftCell) -> MeshSetup:
    if cell.system == HMAS:
        return MESHES[HMAS]
    first = split_of(cell.first or cell.system)
    again = ((cell.half_s, split_of(cell.second)),) if cell.system == ORACLE else ()
    return MeshSetup(name=cell.system, pin=INITIAL_TOPOLOGY, split=first, splits=again)


def known_cells() -> list[DriftCell]:
    return [DriftCell(system=system, seed=seed) for seed in SEEDS for system in (HMAS, *STATIC)]


def cells(options: Options, found: Finished) -> Iterator[Sequence[DriftCell]]:
    """Yields the runs of the systems that are known, and then those of the oracle."""
    yield known_cells()
    yield oracle_cells(found)


def oracle_cells(found: Finished) -> list[DriftCell]:
    """Returns the oracle's runs: in each half it has the static layout that was best there in the mean of the seeds;
    none while one of these runs is missing."""
    runs = {system: [found.get(DriftCell(system=system, seed=seed)) for seed in SEEDS] for system in STATIC}
    if any(run is None for each in runs.values() for run in each):
        return []

    def best(half: str) -> str:
        return max(STATIC, key=lambda system: fmean(run[half] for run in runs[system] if run))

    first, second = best("first_half"), best("second_half")
    return [DriftCell(system=ORACLE, seed=seed, first=first, second=second) for seed in SEEDS]


def rows_of(found: Finished) -> list[DriftRow]:
    """Returns a row for each system, the one with the most on time first; none unless all runs are finished."""
    oracle = oracle_cells(found)
    runs = {cell: run for cell in (*known_cells(), *oracle) if (run := found.get(cell)) is not None}
    if not oracle or len(runs) < len(known_cells()) + len(oracle):
        return []
    rows = []
    for system in dict.fromkeys(cell.system for cell in runs):
        own = [run for cell, run in runs.items() if cell.system == system]
        mean = {name: fmean(run[name] for run in own) for name in DriftRow.__dataclass_fields__ if name in own[0]}
        spread = stdev(run["goodput_rate"] for run in own)
        rows.append(DriftRow(system=system, seeds=len(own), goodput_sd=spread, **mean))
    return sorted(rows, key=lambda row: -row.goodput_rate)


def behind(rows: Sequence[DriftRow]) -> float:
    """Returns by how many points the chosen layout is behind the oracle."""
    rates = {row.system: row.goodput_rate for row in rows}
    return 100.0 * (rates[ORACLE] - rates[HMAS])

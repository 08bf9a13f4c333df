"""Makes the runs behind Niyama's Table 3, Fig. 7b, Fig. 9 and Fig. 10 and collects their results."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import experiments
from experiments.niyama.measure import QosRun
from experiments.niyama.runs import NiyamaRuns
from experiments.niyama.workload import QosLoad, Source
from hmas_lab.sim.cells import CellStore
from hmas_lab.sim.provenance import SOURCES, source_digest

SEED = 1
PAPER_EDF_RPS = 2.75  # Table 3
HIGH_RPS = 6.0  # Table 3, "high load"
LOADS_RPS = (2.0, 3.0, 4.0, HIGH_RPS)  # Fig. 9
DIURNAL_RPS = (2.0, 6.0)  # Fig. 10
DIURNAL_RUN_S = 4 * 3600.0
LOW_SHARE = 0.2

SHARED = ("sarathi-fcfs", "sarathi-edf", "sarathi-srpf", "niyama")
ABLATION = ("sarathi-edf", "dc", "dc+er", "niyama")
ALPHAS = ("fixed-alpha", "steep-alpha")
DIURNAL = ("sarathi-fcfs", "sarathi-edf", "niyama")
GUESSES_RPS = {"sarathi-fcfs": 2.0, "sarathi-edf": 2.8, "dc": 3.6, "dc+er": 3.7, "niyama": 3.8}

CODE = (
    "experiments.niyama.measure",
)  # modules that the results of a run depend on; a change of them makes stored results stale
Figures = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """The results with one source of lengths. `scale` turns the paper's rates into ours: if the lengths are not the
    paper's, loads are scaled by the goodput of Sarathi-EDF. The fields hold the figures of `measure` by system, `loads`
    also by the paper's rate.
    """

    source: Source
    scale: float
    goodput: dict[str, float] = field(default_factory=dict)  # requests per second (Fig. 7b, Table 3)
    high: dict[str, Figures] = field(default_factory=dict)  # Table 3, high load
    loads: dict[str, dict[float, Figures]] = field(default_factory=dict)  # Fig. 9
    diurnal: dict[str, Figures] = field(default_factory=dict)  # Fig. 10

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(runs: NiyamaRuns, source: Source, duration_s: float) -> Evaluation:
    """Makes all runs with one source of lengths, or takes their results from the store. `duration_s` is the offered
    time of a run; those of Fig. 10 take 4 hours."""
    load = QosLoad(source=source, rate_rps=1.0, duration_s=duration_s, seed=SEED)
    goodput = {s: runs.goodput(s, load.at(GUESSES_RPS[s])) for s in dict.fromkeys((*ABLATION, "sarathi-fcfs"))}
    scale = 1.0 if source == "synthetic" else goodput["sarathi-edf"] / PAPER_EDF_RPS
    found = Evaluation(source=source, scale=scale, goodput=goodput)
    for system in (*ABLATION, *ALPHAS):
        found.high[system] = runs(QosRun(system, load.at(scale * HIGH_RPS)))
    for system in SHARED:
        found.loads[system] = {rate: runs(QosRun(system, load.at(scale * rate))) for rate in LOADS_RPS}
    low, high = (scale * rate for rate in DIURNAL_RPS)
    diurnal = QosLoad(
        source=source, rate_rps=low, duration_s=DIURNAL_RUN_S, seed=SEED, peak_rps=high, low_share=LOW_SHARE
    )
    for system in DIURNAL:
        found.diurnal[system] = runs(QosRun(system, diurnal))
    return found


def evaluate_all(
    cells: Path, data: Path | None, duration_s: float, processes: int, progress: Callable[[str], None]
) -> tuple[list[Evaluation], float]:
    """Evaluates both sources of lengths, or only the synthetic one if `data` is None. Returns the results, and the CPU
    seconds that their runs took, including those taken from the store."""
    sources: list[Source] = ["synthetic"] if data is None else ["synthetic", "azure-2023-code"]
    jobs = [(cells, data, source, duration_s) for source in sources]
    if processes > 1:  # the processes fill the store, from which the results are then read
        with ProcessPoolExecutor(min(processes, len(jobs)), mp_context=get_context("spawn")) as pool:
            list(pool.map(_fill, jobs))
    runs = NiyamaRuns(_store(cells), data, progress)
    return [evaluate(runs, source, duration_s) for source in sources], runs.seconds


def _fill(job: tuple[Path, Path | None, Source, float]) -> None:
    cells, data, source, duration_s = job
    evaluate(NiyamaRuns(_store(cells), data, lambda _: None), source, duration_s)


def _store(cells: Path) -> CellStore:
    return CellStore(cells, lambda _: source_digest(CODE, (*SOURCES, Path(experiments.__file__).parents[1])))

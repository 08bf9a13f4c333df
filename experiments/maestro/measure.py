"""The cells of Maestro's Fig. 7: λ*_job, the bound and the runs, each kept as soon as it is computed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any, Literal

from experiments.maestro.fleet import FleetRun, JobFleet
from experiments.maestro.mesh import HMAS, MESHES, REQUESTS, SRTF, TABLE, run_mesh
from experiments.maestro.orders import ORDERS, VLLM, JobKnowledge
from experiments.maestro.workload import make_jobs, service_s
from experiments.study import Figures, Finished, Options
from hmas.engine.core.profile import EngineProfile, builtin_profile
from hmas_lab.sim.bound import job_bound
from hmas_lab.sim.jobs import JobScore, SimJob, score_jobs
from hmas_lab.sim.provenance import SOURCES, source_digest
from hmas_lab.sim.stored import cell_key

PROFILE, SEQUENCES, ENGINES = "tiny-emulated", 16, 2
LOADS = (0.8, 1.1, 1.4, 2.0)
VARIANTS = {1.4: (TABLE, SRTF, REQUESTS), 2.0: (TABLE,)}  # of the mesh, which are run as well at these loads
STRESS_LOAD, STRESS_BATCH = 2.0, 0.8  # the paper's high-stress point
TARGET, CAPACITY_SEEDS, PRECISION = 0.95, (9001, 9002, 9003), 0.01
BEFORE_SEED, BEFORE_S, BEFORE_PER_S = 7002, 500.0, 2.0  # jobs that ended before a run
CUTOFF_S = 1200.0
SYSTEMS = (*ORDERS, HMAS)
BOUND = "bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCell:
    """One λ*_job, bound or run. `load` is in units of λ*_job; `batch`: the share of batch jobs, None: that of Maestro's
    Table I."""

    kind: Literal["capacity", "bound", "run"]
    seconds: float
    caches: bool
    batch: float | None = None
    load: float = 0.0
    seed: int = 0
    system: str = ""

    def key(self) -> str:
        return cell_key(self)

    @property
    def engine(self) -> EngineProfile:
        return builtin_profile(PROFILE).with_limits(max_num_seqs=SEQUENCES, enable_prefix_caching=self.caches)

    @property
    def capacity(self) -> "JobCell":
        """The cell of λ*_job."""
        return JobCell(kind="capacity", seconds=self.seconds, caches=self.caches, batch=self.batch)

    @property
    def workload(self) -> str:
        name = "applications" if self.batch is None else f"applications-batch-{self.batch:g}"
        return f"{name}+cache" if self.caches else name


def code_of(_: Any) -> str:
    """Returns the digest of the code that the figures depend on."""
    return source_digest(("experiments.maestro.measure",), (*SOURCES, Path(__file__).parents[2]))


def compute(cell: JobCell, rate: float, data: Path) -> dict[str, Any]:
    """Computes a cell; `rate` is in jobs/s, and not read for a capacity."""
    profile, started = cell.engine, process_time()
    if cell.kind == "capacity":
        return {"jobs_per_s": _capacity(cell, data), "cpu_s": process_time() - started}
    jobs = make_jobs(data, profile, rate, cell.seconds, cell.seed, cell.batch)
    if cell.kind == "bound":
        return {"bound": job_bound(jobs, profile, ENGINES) / len(jobs), "jobs": len(jobs), "rate": rate}
    before = make_jobs(data, profile, BEFORE_PER_S, BEFORE_S, BEFORE_SEED, cell.batch)
    until_s = cell.seconds + CUTOFF_S
    if cell.system in MESHES:
        run = run_mesh(cell.system, before, profile, ENGINES, jobs, until_s, cell.seed)
    else:
        order = ORDERS[cell.system]()
        run = JobFleet(order, JobKnowledge(before, profile, ENGINES), profile, ENGINES, jobs, until_s).run()
    score = _score(jobs, run, profile)
    return {
        "job_goodput": score.job_goodput,
        "interactive": score.interactive_goodput,
        "batch": score.batch_goodput,
        "wasted": score.wasted,
        "interactive_wait_s": score.interactive_wait_s,
        "job_p50_s": score.job_p50_s,
        "hit": run.cached_tokens / max(1, run.prompt_tokens),
        "busy_ratio": max(run.busy_s) * len(run.busy_s) / sum(run.busy_s),
        "cpu_s": process_time() - started,
        **run.bounds,
    }


def _score(jobs: Sequence[SimJob], run: FleetRun, profile: EngineProfile) -> JobScore:
    calls = (call.offered for job in jobs for call in job.calls)
    work = {o.id: service_s(profile, o.request.prompt_tokens, o.output_tokens) for o in calls}
    return score_jobs(jobs, run.journeys, work)


def _capacity(cell: JobCell, data: Path) -> float:
    """Returns λ*_job: the highest rate at which plain vLLM keeps `TARGET` of the jobs, on seeds of its own."""
    profile = cell.engine
    nothing = JobKnowledge((), profile, ENGINES)

    def kept(rate: float) -> bool:
        found = []
        for seed in CAPACITY_SEEDS:
            jobs = make_jobs(data, profile, rate, cell.seconds, seed, cell.batch)
            fleet = JobFleet(ORDERS[VLLM](), nothing, profile, ENGINES, jobs, cell.seconds + CUTOFF_S)
            found.append(_score(jobs, fleet.run(), profile).job_goodput)
        return fmean(found) >= TARGET

    low = high = 0.5
    while kept(high):
        low, high = high, 1.3 * high
    while not kept(low):
        low, high = low / 1.3, low
    while high - low > PRECISION * low:
        middle = (low + high) / 2.0
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def cells(options: Options, found: Finished) -> Iterator[Sequence[JobCell]]:
    """Yields the searches for λ*_job, and then the runs and bounds, seed by seed, so that an interrupted experiment has
    some seeds of every system."""
    wanted = [cell for seed in options.numbers for cell in _cells(seed, options.seconds)]
    yield list(dict.fromkeys(cell.capacity for cell in wanted))
    yield wanted


def _cells(seed: int, seconds: float) -> Iterator[JobCell]:
    points: list[tuple[bool, float | None, float]] = [
        (caches, None, load) for caches in (False, True) for load in LOADS
    ]
    points += [(caches, STRESS_BATCH, STRESS_LOAD) for caches in (False, True)]
    for caches, batch, load in points:
        variants = VARIANTS.get(load, ()) if batch is None else ()
        for system in (BOUND, *SYSTEMS, *variants):
            kind: Literal["bound", "run"] = "bound" if system == BOUND else "run"
            yield JobCell(kind=kind, seconds=seconds, caches=caches, batch=batch, load=load, seed=seed, system=system)


def given(cell: JobCell, options: Options, found: Finished) -> tuple[float, Path]:
    """Returns the rate in jobs/s, which a search does not read, and the folder of data."""
    capacity = {"jobs_per_s": 0.0} if cell.kind == "capacity" else found.get(cell.capacity)
    assert capacity is not None
    return cell.load * capacity["jobs_per_s"], options.agentic()


def finished(options: Options, found: Finished) -> list[tuple[JobCell, Figures]]:
    """Returns the figures of all cells that are finished."""
    every = [cell for batch in cells(options, found) for cell in batch]
    return [(cell, figures) for cell in every if (figures := found.get(cell)) is not None]

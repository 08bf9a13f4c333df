"""Layouts beyond two engines of a kind: pools of one, three and eight engines, behind one worker and behind one worker
an engine, pools of two kinds of engine, and pools with a slow engine. Pure but for the answers of perception."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean, stdev
from typing import Any, NamedTuple

from experiments.length_bounds import bounds_of
from experiments.study import Figures, Finished, Options
from hmas.contracts.control import INITIAL_TOPOLOGY, Split
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import EngineProfile
from hmas.engine.named import named_profile
from hmas.laws.scoring import is_ok, service_gain
from hmas.sim.perceived import FOLDER, perceived
from hmas.sim.processes.fleet import EngineFleet, FleetSetting
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.result import SimResult
from hmas.sim.setup import POOL, MeshSetup, PoolSetup
from hmas.sim.workload import Workload
from hmas_lab.sim.baselines.systems import BASELINES
from hmas_lab.sim.capacity import CAPACITY_SEEDS, TARGET
from hmas_lab.sim.experiment import chunked
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.stored import cell_key
from hmas_lab.sim.systems import MESHES

A100, H100 = "llama2-70b-a100x4", "llama2-70b-h100x4"
GUESS_RPS = {A100: 2.2, H100: 4.4}  # a first guess of λ* for one engine
CHUNK_TOKENS = 1024
SECONDS, CAPACITY_S = 240.0, 150.0  # of a run, and of those in which λ* is sought
LARGE_S, LARGEST_S = 150.0, 120.0  # of a run of eight engines, all A100 or not
LEARNT_S = 60.0  # a run begins mixed; what comes later than this meets a layout that was chosen
LOADS = (1.4,)  # in λ*
BRACKET, PRECISION = 1.15, 0.02  # of the search for λ*
LATE_S = 30.0  # when a late split comes into force, about when the controller first chooses
CHOSEN, MIXED, LEAST, CAPACITY = "hmas", "hmas-mixed", "least-outstanding", "capacity"
SPLIT, LATE = "split", "late-split"
MEANS = ("goodput_rate", "later", "esg", "esg_late", "ttft_p50")
Kinds = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCell:
    """One run of a system on a pool, or (`CAPACITY`) the search for the pool's λ*. `kinds` are profiles and how many
    engines of each, shared by `workers`. With `SPLIT`, and after `LATE_S` with `LATE`, the first `strict` engines serve
    TPOT SLOs up to `cut_ms`, and the others the rest. `load` is in λ*. Each step of the last engine takes `slowness`
    times as long as its profile says, and nobody is told. Its λ* is taken to be `times` that of the pool with so many
    times fewer engines, to spare a search."""

    kinds: Kinds
    system: str
    workers: int = 1
    cut_ms: int = 0
    strict: int = 0
    load: float = 0.0
    seed: int = 0
    seconds: float = SECONDS
    slowness: float = 1.0
    times: int = 1

    def key(self) -> str:
        return cell_key(self)

    @property
    def capacity(self) -> "PoolCell":
        """The cell of λ*, which depends neither on the workers nor on the order of the engines."""
        numbers = Counter[str]()
        for profile, number in self.kinds:
            numbers[profile] += number // self.times
        return PoolCell(kinds=tuple(sorted(numbers.items())), system=CAPACITY, seconds=CAPACITY_S)

    @property
    def name(self) -> str:
        """The system, and of a split its cut and the engines on its strict side."""
        if self.system not in (SPLIT, LATE):
            return self.system
        return f"{self.system}-{self.cut_ms}: {self.strict} of {sum(n for _, n in self.kinds)}"


class StaticSplit(NamedTuple):
    """A static split to compare with: `strict` engines for TPOT SLOs up to `cut_ms`, the quickest first. `late`: the
    pool is mixed before `LATE_S`."""

    cut_ms: int
    strict: int
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCase:
    """A pool whose chosen layout is compared with static splits; `slowness` and `times` are those of its cells."""

    name: str
    kinds: Kinds
    workers: int = 1
    splits: tuple[StaticSplit, ...] = ()
    seconds: float = SECONDS
    times: int = 1
    slowness: float = 1.0

    @property
    def capacity(self) -> PoolCell:
        """The cell of λ*."""
        return self.cells(LOADS[0], 1)[0].capacity

    def cells(self, load: float, seed: int) -> list[PoolCell]:
        def cell(system: str, **more: Any) -> PoolCell:
            # What no worker takes part in is the same for any number of them.
            workers = 1 if system == LEAST else self.workers
            own: dict[str, Any] = {"workers": workers, "load": load, "seed": seed, "seconds": self.seconds}
            own |= {"slowness": self.slowness, "times": self.times}
            return PoolCell(kinds=self.kinds, system=system, **own, **more)

        splits = [cell(LATE if each.late else SPLIT, cut_ms=each.cut_ms, strict=each.strict) for each in self.splits]
        return [cell(CHOSEN), cell(MIXED), cell(LEAST), *splits]


# Without the late ones, the best of all splits at 90 to 150 ms in one run of 150 s each.
OF_THREE = (
    StaticSplit(90, 1), StaticSplit(100, 1), StaticSplit(111, 1), StaticSplit(124, 2), StaticSplit(100, 1, late=True),
)  # fmt: skip
OF_EIGHT = (StaticSplit(100, 3), StaticSplit(111, 4), StaticSplit(124, 5), StaticSplit(111, 4, late=True))
OF_TWO_KINDS = (StaticSplit(111, 1), StaticSplit(124, 1), StaticSplit(134, 1), StaticSplit(124, 1, late=True))
OF_FOUR_AND_FOUR = (
    StaticSplit(124, 4),
    StaticSplit(111, 4),
    StaticSplit(111, 3),
    StaticSplit(124, 3),
    StaticSplit(124, 5),
)
# The slow engine is the last one, which serves the lax class.
OF_SLOW = (StaticSplit(100, 1), StaticSplit(111, 2), StaticSplit(134, 2))
CASES = (
    PoolCase(name="one A100 and one H100", kinds=((H100, 1), (A100, 1)), splits=OF_TWO_KINDS),
    PoolCase(name="one engine", kinds=((A100, 1),)),
    PoolCase(name="three engines", kinds=((A100, 3),), splits=OF_THREE),
    PoolCase(name="three engines", kinds=((A100, 3),), workers=3, splits=OF_THREE),
    PoolCase(name="eight engines", kinds=((A100, 8),), splits=OF_EIGHT, seconds=LARGE_S),
    PoolCase(
        name="four A100 and four H100",
        kinds=((H100, 4), (A100, 4)),
        splits=OF_FOUR_AND_FOUR,
        seconds=LARGEST_S,
        times=4,
    ),
    PoolCase(name="eight engines", kinds=((A100, 8),), workers=8, splits=OF_EIGHT, seconds=LARGE_S),
    *(
        PoolCase(name=name, kinds=((A100, 2), (A100, 1)), workers=workers, splits=OF_SLOW, slowness=slowness)
        for name, slowness in (("three engines, one twice as slow", 2.0), ("three engines, one thrice as slow", 3.0))
        for workers in (1, 3)
    ),
)


def hardware(profile: str) -> str:
    return "H100" if profile == H100 else "A100"


def cells_of(case: PoolCase, seeds: Iterable[int]) -> list[PoolCell]:
    return [cell for load in LOADS for seed in seeds for cell in case.cells(load, seed)]


def cells(options: Options, found: Finished) -> Iterator[Sequence[PoolCell]]:
    """Yields the searches for λ*, and then the runs, one seed after the other, so that an interrupted experiment has
    some seeds of all pools."""
    yield [case.capacity for case in CASES]
    for seed in options.numbers:
        yield [cell for case in CASES for cell in cells_of(case, (seed,))]


def given(cell: PoolCell, options: Options, found: Finished) -> tuple[float]:
    """Returns the rate that a run is offered, in requests per second; 0 for a search."""
    if cell.system == CAPACITY:
        return (0.0,)
    capacity = found.get(cell.capacity)
    assert capacity is not None
    return (cell.load * cell.times * capacity["rate_rps"],)


def compute(cell: PoolCell, rate_rps: float) -> Figures:
    """Makes one run at `rate_rps` requests per second, or one search for λ*, and returns its figures."""
    if cell.system == CAPACITY:
        return {"rate_rps": highest_rate(cell)}
    workload = perceived(_workload(cell, rate_rps, cell.seed, prompts=True), folder=FOLDER)
    if cell.system == LEAST:
        run, layouts = _fcfs(cell, workload, cell.seed), []
    else:
        mesh = MeshSim(_setup(cell), _profiles(cell)[0], len(_profiles(cell)), workload, cell.seed, cutoff_s=120.0)
        run = mesh.run()
        layouts = [(span.start_s, span.topology) for span in run.run.layouts]
    score = run.score
    return {
        "rate_rps": rate_rps,
        "goodput_rate": score.goodput_rate,
        "later": fmean(is_ok(each) for each in run.settlements if each.offered_s >= LEARNT_S),
        "esg": score.esg_rate,
        "esg_late": sum(service_gain(each) for each in run.settlements if not is_ok(each)) / cell.seconds,
        "ttft_p50": score.ttft_p50_s,
        "layouts": layouts,
        **bounds_of(run.run),
    }


def highest_rate(cell: PoolCell) -> float:
    """Returns λ* of the pool, to `PRECISION`: the highest rate in requests per second at which plain FCFS to the engine
    with the fewest outstanding requests keeps a goodput rate of `TARGET`, on seeds that no comparison uses."""

    def kept(rate_rps: float) -> bool:
        seeds = CAPACITY_SEEDS[:2]
        runs = (_fcfs(cell, _workload(cell, rate_rps, seed, prompts=False), seed) for seed in seeds)
        return fmean(run.score.goodput_rate for run in runs) >= TARGET

    low = sum(number * GUESS_RPS[profile] for profile, number in cell.kinds)
    while not kept(low):
        low /= BRACKET
    while kept(low * BRACKET):
        low *= BRACKET
    high = low * BRACKET
    while high - low > PRECISION * low:
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def _workload(cell: PoolCell, rate_rps: float, seed: int, *, prompts: bool) -> Workload:
    spec = WorkloadSpec(kind="mix", duration_s=cell.seconds, stated=True)
    return build(spec, rate_rps, seed, prompts=prompts).fitting(_profiles(cell)[0])


def _profiles(cell: PoolCell) -> list[EngineProfile]:
    return [profile for profile, number in _kinds(cell) for _ in range(number)]


def _kinds(cell: PoolCell) -> list[tuple[EngineProfile, int]]:
    kinds = [(chunked(named_profile(name), CHUNK_TOKENS), number) for name, number in cell.kinds]
    profile, number = kinds[-1]
    slow = {each.name: cell.slowness * getattr(profile.cost, each.name) for each in fields(profile.cost)}
    return [*kinds[:-1], (replace(profile, cost=StepCostModel(**slow)), number)]


def _fcfs(cell: PoolCell, workload: Workload, seed: int) -> SimResult:
    baseline = BASELINES["vllm"]
    cores = [baseline.core(profile, FleetSetting(seed * 1000 + i)) for i, profile in enumerate(_profiles(cell))]
    return EngineFleet(baseline, cores, workload).run()


def _setup(cell: PoolCell) -> MeshSetup:
    (profile, number), *others = _kinds(cell)
    pools = (PoolSetup(POOL, profile, number, cell.workers, tuple(others)),)
    if cell.system not in (SPLIT, LATE):
        return replace(MESHES[cell.system], pools=pools)
    whole = sum(n for _, n in cell.kinds)
    split = Split((cell.cut_ms / 1000.0,), (cell.strict, whole - cell.strict))
    pinned = MeshSetup(name=cell.name, pin=INITIAL_TOPOLOGY, split=split, pools=pools)
    return pinned if cell.system == SPLIT else replace(pinned, split=Split(), splits=((LATE_S, split),))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """What one system reached on one pool at one load, in λ*: means over `seeds`; `goodput_sd` is None for a single
    one. `later` is the goodput rate of the requests that came after `LEARNT_S`, `esg_late` the part of the ESG rate
    that requests bring which were not on time, and `layout` tells when the first seed's run got which layout."""

    pool: str
    workers: int
    load: float
    system: str
    goodput_rate: float
    goodput_sd: float | None
    later: float
    esg: float
    esg_late: float
    ttft_p50: float
    layout: str
    seeds: int


def rows_of(options: Options, store: Finished) -> list[PoolRow]:
    """Returns the rows of all systems of which at least one run is finished."""
    rows = []
    for case in CASES:
        runs: dict[tuple[float, str], list[Mapping[str, Any]]] = {}
        for cell in cells_of(case, options.numbers):
            if (run := store.get(cell)) is not None:
                runs.setdefault((cell.load, cell.name), []).append(run)
        for (load, system), found in runs.items():
            mean = {name: fmean(run[name] for run in found) for name in MEANS}
            rows.append(
                PoolRow(
                    pool=case.name, workers=case.workers, load=load, system=system, seeds=len(found),
                    goodput_sd=stdev(run["goodput_rate"] for run in found) if len(found) > 1 else None,
                    layout=_layouts(found[0]["layouts"], case.seconds), **mean,
                )
            )  # fmt: skip
    return rows


def _layouts(spans: Sequence[tuple[float, str]], seconds: float) -> str:
    """Returns the layouts of a run in words; what came into force after its last request says nothing."""
    return "; ".join(f"{at_s:.0f} s {text}" for at_s, text in spans if at_s < seconds) or "mixed"

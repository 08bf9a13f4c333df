"""What tells before a run how a pool's instances will fare: each evaluator of plans beside the simulated mesh, cell by
cell. Pure but for the clock that measures the evaluators' CPU time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from time import process_time
from typing import Any

from scipy.stats import spearmanr

from experiments.study import Figures, Finished, Options
from hmas.contracts.control import Split
from hmas.contracts.pool_plan import InstanceType
from hmas.laws.pace import PaceConfig
from hmas.laws.placement.candidates import PaceTable
from hmas.laws.placement.demand import PoolDemand, SampledRequest, in_order
from hmas.laws.placement.fluid_bound import fluid_share
from hmas.laws.scoring import Settlement, is_ok
from hmas.runtime.catalogue_file import shipped_catalogue
from hmas.sim.quick import QuickValue
from hmas.sim.workload import Workload
from hmas_lab.placement.serving import Way, served
from hmas_lab.placement.slots import slot_run
from hmas_lab.placement.traces import PoolTraffic, alone_step_s, traffic_workload
from hmas_lab.sim.stored import cell_key

JUDGED_S = 40.0  # requests that came later are judged: the mesh chooses a layout at 20 s
SECONDS = 80.0
SLOTS = (64, 256)  # MaaSO's batch limits
SPLITS = 2  # of the pace law, beside mixed, that are tried
AUTO, PLANNED = "mesh", "planned"  # the judges: the mesh that chooses its layout, and the one that has the plan's
QUICK, PACE, FLUID, FCFS = "quick simulation", "pace law", "fluid LP", "FCFS run"
EVALUATORS = (QUICK, PACE, FLUID, *(f"slots, B {slots}" for slots in SLOTS), FCFS)
POOL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedPool:
    """A model on a kind of card under a trace at `rate_rps` requests per second, and the instances to be judged: each
    of `shapes` has the cards of each instance."""

    name: str
    model: str
    hardware: str
    trace: str
    kappa: float
    rate_rps: float
    shapes: tuple[tuple[int, ...], ...]
    cv: float = 1.0


EIGHT = ((4, 4), (4, 2, 2), (2, 2, 2, 2), (4, 2, 1, 1), (8,), (2, 2, 2, 1, 1), (4, 1, 1, 1, 1), (1,) * 8)
COARSE = ((4, 4), (4, 2, 2), (2, 2, 2, 2), (4, 2), (8,), (2, 2, 2), (4,), (2, 2))
TWELVE = ((4, 4, 4), (4, 4, 2, 2), (4, 2, 2, 2, 2), (2,) * 6, (8, 4), (8, 2, 2), (4, 4, 2), (2,) * 4)
SIXTEEN = ((4,) * 4, (4, 4, 2, 2, 2, 2), (8, 4, 4), (2,) * 8, (8, 8), (8, 2, 2, 2, 2), (4, 4, 4, 2, 2), (4, *(2,) * 6))
Q32, Q32_BF16, L70 = "Qwen/Qwen3-32B-fp8", "Qwen/Qwen3-32B-bf16", "meta-llama/Llama-3.1-70B-fp8"
POOLS = (
    EvaluatedPool(name="Qwen3-32B fp8, H100, t4 κ 1", model=Q32, hardware="h100", trace="t4", kappa=1.0, rate_rps=22.0,
                  shapes=EIGHT),
    EvaluatedPool(name="Llama-70B, H100, t4 κ 1", model=L70, hardware="h100", trace="t4", kappa=1.0, rate_rps=7.5,
                  shapes=COARSE),
    EvaluatedPool(name="Qwen3-32B fp8, H100, t4 κ 2", model=Q32, hardware="h100", trace="t4", kappa=2.0, rate_rps=40.0,
                  shapes=EIGHT),
    EvaluatedPool(name="Llama-70B, H200, t9 κ 1", model=L70, hardware="h200", trace="t9", kappa=1.0, rate_rps=28.0,
                  shapes=EIGHT),
    EvaluatedPool(name="Qwen3-32B bf16, H100, t4 κ 1.5", model=Q32_BF16, hardware="h100", trace="t4", kappa=1.5,
                  rate_rps=26.0, shapes=TWELVE),
    EvaluatedPool(name="Llama-70B, H100, t9 κ 1.5", model=L70, hardware="h100", trace="t9", kappa=1.5, rate_rps=35.0,
                  shapes=SIXTEEN),
    EvaluatedPool(name="Qwen3-32B fp8, H100, t4 κ 1, cv 4", model=Q32, hardware="h100", trace="t4", kappa=1.0,
                  rate_rps=20.0, shapes=EIGHT, cv=4.0),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorCell:
    """All evaluators and both judges on one shape of a pool."""

    pool: str
    shape: tuple[int, ...]
    seed: int
    seconds: float = SECONDS

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"{self.pool} {self.shape}"


def cells(options: Options, found: Finished) -> Iterator[Sequence[EvaluatorCell]]:
    """Yields one shape of each pool after the other, so that an interrupted study has something of each."""
    for number in range(max(len(pool.shapes) for pool in POOLS)):
        yield [
            EvaluatorCell(pool=pool.name, shape=pool.shapes[number], seed=1)
            for pool in POOLS
            if number < len(pool.shapes)
        ]


def types_of(pool: EvaluatedPool) -> dict[int, InstanceType]:
    """Returns the shipped catalogue's type of each number of cards."""
    kinds = [k for k in shipped_catalogue().types if (k.model, k.hardware) == (pool.model, pool.hardware)]
    return {kind.gpus: kind for kind in kinds}


def demand_of(workload: Workload) -> PoolDemand:
    """Returns the requests of a workload whose SLOs state a time per token."""
    requests = tuple(
        SampledRequest(each.request.arrival_s, each.request.prompt_tokens, each.output_tokens, each.slo.ttft_s,
                       each.slo.tpot_s)
        for each in workload.requests
    )  # fmt: skip
    return PoolDemand(pool=POOL, model=POOL, requests=requests, seconds=workload.duration_s)


def compute(cell: EvaluatorCell) -> Figures:
    """Returns the share that each evaluator and judge says is on time, of the requests after `JUDGED_S` where it tells
    them apart, and the CPU seconds that each took."""
    pool = next(each for each in POOLS if each.name == cell.pool)
    types = types_of(pool)
    instances = in_order([types[gpus] for gpus in cell.shape])
    alone_s = alone_step_s(types[min(types)].step)
    traffic = PoolTraffic(
        pool=POOL, trace=pool.trace, rate_rps=pool.rate_rps, alone_s=alone_s, cv=pool.cv, kappa=pool.kappa
    )
    workload = traffic_workload([traffic], cell.seconds, cell.seed)
    demand = demand_of(workload)
    shares: dict[str, float] = {}
    cpu_s: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        began_s = process_time()
        found = call()
        cpu_s[name] = process_time() - began_s
        return found

    kinds = tuple(dict.fromkeys(instances))
    counts = tuple(instances.count(kind) for kind in kinds)
    ranked = timed(PACE, lambda: PaceTable(demand, kinds, PaceConfig()).ranked(counts, SPLITS))
    shares[PACE] = ranked[0][1]
    value = QuickValue(warm_s=JUDGED_S)
    splits = tuple(dict.fromkeys((*(split for split, _ in ranked), Split())))
    by_split = timed(QUICK, lambda: {split: value(demand, instances, split) for split in splits})
    best = max(by_split, key=by_split.__getitem__)
    shares[QUICK] = by_split[best]
    shares[FLUID] = timed(FLUID, lambda: fluid_share(demand, instances))
    late = [number for number, each in enumerate(workload.requests) if each.request.arrival_s >= JUDGED_S]
    for slots in SLOTS:
        name = f"slots, B {slots}"
        deployed = tuple((replace(kind, max_num_seqs=slots), n) for kind, n in zip(kinds, counts, strict=True))
        tallies = timed(name, lambda d=deployed: slot_run(workload.requests, d, alone_s))  # type: ignore[misc]
        shares[name] = fmean(tallies[number].met for number in late)
    for name, way in ((FCFS, Way.FCFS), (AUTO, Way.MESH), (PLANNED, Way.PLANNED)):
        ends = timed(name, lambda w=way: served(w, workload, instances, best, cell.seed))  # type: ignore[misc]
        shares[name] = _kept(ends)
    return {"shares": shares, "cpu_s": cpu_s, "requests": len(workload.requests), "runs": len(splits),
            "cuts_ms": [1000.0 * cut_s for cut_s in best.cuts_s], "engines": list(best.engines)}  # fmt: skip


def _kept(ends: Sequence[Settlement]) -> float:
    return fmean(is_ok(each) for each in ends if each.offered_s >= JUDGED_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorRow:
    """One shape of a pool: what each evaluator and judge says is on time, as shares by name, and the CPU seconds that
    each took. `runs`: how many quick simulations were made for it."""

    pool: str
    shape: tuple[int, ...]
    requests: int
    shares: dict[str, float]
    cpu_s: dict[str, float]
    runs: int
    cuts_ms: Sequence[float]
    engines: Sequence[int]


def rows_of(options: Options, found: Finished) -> list[EvaluatorRow]:
    """Returns the rows of the finished cells, pool by pool."""
    names = [field.name for field in fields(EvaluatorRow)]
    rows = []
    for pool in POOLS:
        for batch in cells(options, found):
            for cell in batch:
                if cell.pool == pool.name and (run := found.get(cell)) is not None:
                    told = {name: run[name] for name in names if name in run}
                    rows.append(EvaluatorRow(**(told | {"pool": cell.pool, "shape": cell.shape})))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How an evaluator compares with a judge, in points: mean and largest absolute difference, the mean difference
    (`bias`), Spearman's rank correlation, and how much less the judge sees in the shape that it would choose than in
    the best one, at worst among ties."""

    mean: float
    largest: float
    bias: float
    spearman: float
    lost: float


def accuracy(rows: Sequence[EvaluatorRow], evaluator: str, judge: str) -> Accuracy:
    """Returns the accuracy over the shapes of one pool."""
    said = [row.shares[evaluator] for row in rows]
    seen = [row.shares[judge] for row in rows]
    off = [100.0 * (a - b) for a, b in zip(said, seen, strict=True)]
    chosen = min(b for a, b in zip(said, seen, strict=True) if a >= max(said) - 1e-9)
    rank = float(spearmanr(said, seen).statistic) if len(set(said)) > 1 and len(set(seen)) > 1 else 0.0
    return Accuracy(
        mean=fmean(map(abs, off)),
        largest=max(map(abs, off)),
        bias=fmean(off),
        spearman=rank,
        lost=100.0 * (max(seen) - chosen),
    )


def by_pool(rows: Sequence[EvaluatorRow]) -> dict[str, list[EvaluatorRow]]:
    """Returns the rows of each pool of which more than two shapes are finished."""
    pools: dict[str, list[EvaluatorRow]] = {}
    for row in rows:
        pools.setdefault(row.pool, []).append(row)
    return {name: own for name, own in pools.items() if len(own) > 2}


def overall(rows: Sequence[EvaluatorRow], evaluator: str, judge: str) -> Accuracy:
    """Returns the accuracy over all pools, in each of which the evaluator chooses for itself: means over the pools, of
    the largest difference the largest, and the largest number of points lost."""
    each = [accuracy(own, evaluator, judge) for own in by_pool(rows).values()]
    return Accuracy(
        mean=fmean(a.mean for a in each),
        largest=max(a.largest for a in each),
        bias=fmean(a.bias for a in each),
        spearman=fmean(a.spearman for a in each),
        lost=max(a.lost for a in each),
    )

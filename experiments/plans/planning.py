"""Plans of each system for a case, made on a sample of requests that no plan is judged on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import process_time
from typing import Any

from experiments.plans.cases import PlanCase
from experiments.study import Figures
from hmas.contracts.control import Split
from hmas.contracts.pool_plan import InstanceType, PoolPlan
from hmas.laws.pace import PaceConfig
from hmas.laws.placement.candidates import PaceTable
from hmas.laws.placement.demand import PoolDemand, SampledRequest, in_order
from hmas.laws.placement.fluid_bound import fluid_bound
from hmas.laws.placement.plan_search import Placement, PlacementFound, SearchConfig, search
from hmas.sim.quick import QuickValue
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.placement.maaso import Placer, batch_limited
from hmas_lab.placement.one_type import Judge, one_size_for_all, one_type_each, replicated
from hmas_lab.placement.slots import ServingScore, slot_run, total
from hmas_lab.placement.traces import traffic_workload
from hmas_lab.sim.stored import cell_key

SR, ALPASERVE, MAASO, MAASO_SLO = "sr", "alpaserve", "maaso", "maaso*"
ONE_SIZE, ONE_TYPE, OURS = "one-size", "one-type", "ours"
SYSTEMS = (SR, ALPASERVE, MAASO, MAASO_SLO, OURS, ONE_SIZE, ONE_TYPE)
LIMITS = (32, 64, 128, 256)  # batch limits that the baselines search
SAMPLE = 901  # the seed of the sample
WARM_S = 20.0  # of the sample, in which nothing is judged
SPEED = 0.001  # what full speed counts beside an SLO that is met, so that slots that are all met use all cards
HOPELESS = 0.25  # share on time by the pace law, which is some 20 points too low
NEARLY_ALL = 0.995
SPLITS = 2  # of the pace law, beside mixed, that are tried


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCell:
    """The plans of all systems for a case, or of `only` some."""

    case: PlanCase
    only: tuple[str, ...] = SYSTEMS

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"plans for {self.case.name}"


@dataclass(frozen=True, slots=True)
class PlacedEngines:
    """A pool's engines: types with their batch limit, and how many of each, as the plan orders them (`groups`), with
    the split of the plan itself (`own`), if it has one; and the layout that our order begins with, whose classes get
    the engines in the order of their steps."""

    pool: str
    groups: tuple[tuple[str, int, int], ...]
    own: Split
    layout: Split

    def instances(self, kinds: Sequence[InstanceType], *, limited: bool = False) -> list[InstanceType]:
        """Returns the engines, in the order of the groups; with the plan's batch limits if `limited`, else those of the
        types."""
        named = {kind.name: kind for kind in kinds}
        found = []
        for name, count, limit in self.groups:
            found += [replace(named[name], max_num_seqs=limit) if limited else named[name]] * count
        return found


def engines_from(document: Mapping[str, Any]) -> PlacedEngines:
    """Returns the engines of a stored plan."""
    own, layout = (
        Split(tuple(each["cuts_s"]), tuple(each["engines"])) for each in (document["own"], document["layout"])
    )
    return PlacedEngines(document["pool"], tuple(tuple(group) for group in document["groups"]), own, layout)


def demand_of(pool: str, model: str, workload: Workload) -> PoolDemand:
    rows = tuple(
        SampledRequest(
            each.request.arrival_s, each.request.prompt_tokens, each.output_tokens, each.slo.ttft_s, each.slo.tpot_s
        )
        for each in workload.requests
    )
    return PoolDemand(pool=pool, model=model, requests=rows, seconds=workload.duration_s)


class Planning:
    """The sample of a case and what the systems make of it."""

    def __init__(self, case: PlanCase) -> None:
        self._case = case
        self._kinds = case.kinds
        workloads = {
            pool: traffic_workload((case.traffic(pool),), max(case.seconds, 2 * WARM_S), SAMPLE) for pool in self._kinds
        }
        self._demands = {
            pool: demand_of(pool, self._kinds[pool][0].model, workload) for pool, workload in workloads.items()
        }
        self._requests: dict[str, Sequence[OfferedRequest]] = {p: w.requests for p, w in workloads.items()}
        self._limited = batch_limited(self._kinds, LIMITS)
        self._value = QuickValue(warm_s=WARM_S)
        self._found: PlacementFound | None = None
        self._quick: dict[tuple[str, str, int], float] = {}

    def plans(self, system: str) -> tuple[PoolPlan, ...]:
        """Returns the plans of a system; those of our search have no batch limits."""
        case = self._case
        match system:
            case "sr":
                return replicated(self._limited, case.gpus, self._judge())
            case "alpaserve":
                return one_type_each(self._limited, case.gpus, self._judge())
            case "maaso" | "maaso*":
                score = ServingScore() if system == MAASO else ServingScore(alpha=1.0)
                return Placer(self._limited, score).placed(self._requests, case.gpus, case.alone_s)
            case "one-size":
                return one_size_for_all(self._kinds, case.gpus, self._quickly)
            case "one-type" if case.series:
                return _pool_plans(self._searched().one_type)
            case "one-type":
                return one_type_each(self._kinds, case.gpus, self._quickly)
        raise ValueError(f"unknown system {system!r}: choose one of {', '.join(SYSTEMS)}")

    def ours(self) -> tuple[tuple[PoolPlan, ...], Figures]:
        """Returns the plans of our search, and what it says of them."""
        found = self._searched()
        return _pool_plans(found.best), {
            "expected": found.best.share, "one_type_is_enough": found.one_type_is_enough,
            "evaluations": found.evaluations,
        }  # fmt: skip

    def bound(self) -> float:
        """Returns the share of all requests that no plan exceeds, in the long run."""
        return fluid_bound(list(self._demands.values()), self._case.catalogue, [self._case.budget])

    def engines(self, plan: PoolPlan) -> PlacedEngines:
        """Returns a plan's engines, with the layout under which the quick simulation keeps the most on time."""
        limits = {kind.name: kind for own in (*self._limited.values(), *self._kinds.values()) for kind in own}
        groups = tuple(
            (_base(limits[g.type].name, self._kinds[plan.pool]), g.count, limits[g.type].max_num_seqs)
            for g in plan.groups
        )
        found = PlacedEngines(plan.pool, groups, plan.split, Split())
        instances = in_order(found.instances(self._kinds[plan.pool]))
        if not instances:
            return found
        demand, kinds = self._demands[plan.pool], tuple(dict.fromkeys(instances))
        counts = tuple(instances.count(kind) for kind in kinds)
        ranked = [split for split, _ in PaceTable(demand, kinds, PaceConfig()).ranked(counts, SPLITS)]
        tried = dict.fromkeys((*ranked, plan.split, Split()))
        return replace(found, layout=max(tried, key=lambda split: self._value(demand, instances, split)))

    def _quickly(self, pool: str, kind: InstanceType, count: int) -> float:
        """Returns the part of all requests that the quick simulation has on time on so many engines of a type. What the
        pace law has little hope for is not run, nor more engines than such as have nearly everything on time."""
        if (known := self._quick.get((pool, kind.name, count))) is not None:
            return known
        demand = self._demands[pool]
        ranked = PaceTable(demand, (kind,), PaceConfig()).ranked((count,), SPLITS)
        weight = len(demand.requests) / sum(len(each.requests) for each in self._demands.values())
        fewer = self._quick.get((pool, kind.name, count - 1), 0.0)
        if ranked[0][1] < HOPELESS:
            share = ranked[0][1]
        elif fewer >= NEARLY_ALL * weight:
            share = fewer / weight
        else:
            share = max(self._value(demand, (kind,) * count, split) for split, _ in ranked)
        self._quick[pool, kind.name, count] = weight * share
        return weight * share

    def _searched(self) -> PlacementFound:
        if self._found is None:
            demands = list(self._demands.values())
            self._found = search(demands, self._case.catalogue, [self._case.budget], self._value, SearchConfig())
        return self._found

    def _judge(self) -> Judge:
        number = sum(map(len, self._requests.values()))
        fastest_s = {pool: min(k.step.step_s(0, 1, 0, 0.0) for k in own) for pool, own in self._kinds.items()}

        def judge(pool: str, kind: InstanceType, count: int) -> float:
            tally = total(slot_run(self._requests[pool], ((kind, count),), fastest_s[pool]))
            return (tally.met + SPEED * tally.speed) / number

        return judge


def _pool_plans(placement: Placement) -> tuple[PoolPlan, ...]:
    return tuple(each.plan for each in placement.pools)


def _base(name: str, kinds: Iterable[InstanceType]) -> str:
    """Returns the name of the catalogue's type of which `name` is one with a batch limit."""
    return next(kind.name for kind in kinds if name in (kind.name, *(f"{kind.name}-b{limit}" for limit in LIMITS)))


def compute_plans(cell: PlanCell) -> Figures:
    """Returns each system's plans with the CPU seconds that it took to make them, and what our search says of its. What
    was found for one size for all serves for one size a model as well, and in a series our search finds that."""
    planning = Planning(cell.case)
    plans: dict[str, Any] = {}
    cpu_s: dict[str, float] = {}

    def timed(call: Callable[[], Any]) -> tuple[Any, float]:
        began_s = process_time()
        found = call()
        return found, process_time() - began_s

    said: Figures = {}
    for system in cell.only:
        if system == OURS:
            (found, said), cpu_s[system] = timed(planning.ours)
        else:
            found, cpu_s[system] = timed(lambda name=system: planning.plans(name))  # type: ignore[misc]
        plans[system] = [asdict(planning.engines(plan)) for plan in found]
    said["bound"] = planning.bound() if not cell.case.series else None
    return {"plans": plans, "cpu_s": cpu_s, **said}

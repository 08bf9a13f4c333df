"""What is computed for the second judge: plans of our search and of AISimulate's, runs of both in both simulators, and
the pace of one engine by both."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any

from experiments.judge.judged_cells import (
    CELLS,
    JUDGED_S,
    MODEL,
    POOL,
    SAMPLE,
    SAMPLE_S,
    SECONDS,
    JudgedCell,
    JudgedPlan,
    deployments,
    in_class_order,
    kinds,
)
from experiments.judge.outside import OutsideShape, predicted, recommended
from experiments.plans.cases import HARDWARE
from experiments.plans.planning import SPLITS, WARM_S, demand_of
from experiments.study import Figures, Finished, Options
from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, Catalogue
from hmas.laws.pace import PaceConfig
from hmas.laws.placement.candidates import PaceTable
from hmas.laws.placement.plan_search import SearchConfig, search
from hmas.laws.scoring import is_ok
from hmas.sim.quick import QuickValue
from hmas.sim.workload import OfferedRequest
from hmas_lab.placement.serving import Way, served
from hmas_lab.sim.provenance import source_digest
from hmas_lab.sim.stored import cell_key

AISIMULATE, ALIKE, SHIPPED = "AISimulate", "MeshSim, first come", "MeshSim, our order"
JUDGES = (AISIMULATE, ALIKE, SHIPPED)
OURS, SINGLE, APART = "ours", "AISimulate's, one SLA", "AISimulate's, each class"
WHOLE = -1  # a search is asked for the requests of all classes
PROBES = tuple((kind.gpus, count) for kind in kinds() for count in (8, 64))  # cards, requests
PROBE_TOKENS = (400, 400)  # prompt and output tokens of each request of a probe
PLANNING = ("hmas.laws.placement.plan_search", "hmas.runtime.catalogue_file", "hmas.sim.quick")
RUNNING = ("hmas.runtime.catalogue_file", "hmas_lab.placement.serving")
TRAFFIC = ("hmas.runtime.catalogue_file", "hmas_lab.placement.traces")


@dataclass(frozen=True, slots=True, kw_only=True)
class OurSearch:
    """What our search plans for a cell."""

    cell: JudgedCell

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"our plan for {self.cell.title}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSearch:
    """AISimulate's search on `least` to `most` cards for a class of a cell, by its number, or for all its requests
    under the strict class's SLO (`WHOLE`)."""

    cell: JudgedCell
    part: int
    least: int
    most: int

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"AISimulate's search for {self.cell.title}, part {self.part}, {self.least} to {self.most} cards"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A run of a cell on the engines of a plan by one of `JUDGES`, with the classes of the plan."""

    cell: JudgedCell
    plan: JudgedPlan
    judge: str
    seed: int

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"{self.cell.title} on {self.plan.told} by {self.judge}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSearch:
    """The classes with which our order serves a plan best, by the quick simulation."""

    cell: JudgedCell
    plan: JudgedPlan

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"the layout of {self.plan.told} for {self.cell.title}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceProbe:
    """One engine on `cards` cards that gets `count` equal requests at once, in AISimulate."""

    cards: int
    count: int

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"{self.count} requests on {self.cards} cards in AISimulate"


SecondJudgeCell = OurSearch | OutsideSearch | LayoutSearch | JudgedRun | PaceProbe


def code(cell: SecondJudgeCell) -> str:
    """Returns the digest of our code on which the figures of a cell depend. What AISimulate says depends on the
    requests alone."""
    if isinstance(cell, (OurSearch, LayoutSearch)):
        return source_digest(PLANNING)
    if isinstance(cell, JudgedRun) and cell.judge != AISIMULATE:
        return source_digest(RUNNING)
    return source_digest(TRAFFIC)


def compute(cell: SecondJudgeCell, python: Path | None) -> Figures:
    """Returns the figures of a cell; `python` is that of AISimulate's environment. Raises ValueError without it."""
    match cell:
        case OurSearch():
            return _our_search(cell.cell)
        case OutsideSearch():
            requests = _part(cell.cell, cell.part)
            slo_s = cell.cell.slos_s[max(cell.part, 0)]
            shapes, version = recommended(python, slo_s, cell.least, cell.most, requests)
            return {"shapes": [asdict(shape) for shape in shapes], "version": version}
        case LayoutSearch():
            return {"plan": asdict(_laid_out(cell.cell, cell.plan))}
        case JudgedRun():
            return _judged(cell, python)
        case PaceProbe():
            return _probe(cell, python)


def _part(cell: JudgedCell, number: int) -> list[OfferedRequest]:
    requests = cell.workload(SAMPLE_S, SAMPLE).requests
    return [each for each in requests if number == WHOLE or each.slo.tpot_s == cell.slos_s[number]]


def _our_search(cell: JudgedCell) -> Figures:
    """Returns the plan of the search that ships, and the share that it expects."""
    began_s = process_time()
    demand = demand_of(POOL, MODEL, cell.workload(SAMPLE_S, SAMPLE))
    budget = Budget(HARDWARE, cell.cards)
    best = search([demand], Catalogue(kinds()), [budget], QuickValue(warm_s=WARM_S), SearchConfig()).best
    plan, sizes = best.pools[0].plan, {kind.name: kind.gpus for kind in kinds()}
    cards = [sizes[group.type] for group in plan.groups for _ in range(group.count)]
    own = JudgedPlan(tuple(cards), plan.split.cuts_s, plan.split.engines)
    return {"plan": asdict(own), "expected": best.share, "cpu_s": process_time() - began_s}


def _laid_out(cell: JudgedCell, plan: JudgedPlan) -> JudgedPlan:
    """Returns the plan with the best of its own classes, those that the pace law ranks first, and none."""
    demand, value = demand_of(POOL, MODEL, cell.workload(SAMPLE_S, SAMPLE)), QuickValue(warm_s=WARM_S)
    ordered = in_class_order(plan)
    different = tuple(dict.fromkeys(ordered.engines))
    counts = tuple(ordered.engines.count(kind) for kind in different)
    ranked = [split for split, _ in PaceTable(demand, different, PaceConfig()).ranked(counts, SPLITS)]
    tried = [plan, *(JudgedPlan(ordered.cards, split.cuts_s, split.engines) for split in (*ranked, Split()))]
    return max(dict.fromkeys(tried), key=lambda each: value(demand, each.engines, each.split))


def _judged(cell: JudgedRun, python: Path | None) -> Figures:
    """Returns of each class how many requests are judged, and how many of them were on time."""
    began_s = process_time()
    workload = cell.cell.workload(SECONDS, cell.seed)
    on_time: dict[str, bool] = {}
    if cell.judge == AISIMULATE:
        for each in deployments(cell.plan, workload):
            requests = [workload.requests[place] for place in each.requests]
            for request, times in zip(requests, predicted(python, each.tensor, each.replicas, requests), strict=True):
                on_time[request.id] = kept(request, times)
    else:
        way = Way.PLANNED if cell.judge == SHIPPED else Way.CLASSES
        ends = served(way, workload, cell.plan.engines, cell.plan.split, cell.seed)
        on_time = {each.request_id: is_ok(each) for each in ends}
    found: dict[str, list[int]] = {"requests": [], "on_time": []}
    for slo_s in cell.cell.slos_s:
        own = [r.id for r in workload.requests if r.slo.tpot_s == slo_s and r.request.arrival_s >= JUDGED_S]
        found["requests"].append(len(own))
        found["on_time"].append(sum(on_time.get(name, False) for name in own))
    return {**found, "cpu_s": process_time() - began_s}


def kept(request: OfferedRequest, times: tuple[float, float] | None) -> bool:
    """Tells whether a request with these times to the first and per further token is on time."""
    return times is not None and times[0] <= request.slo.ttft_s and times[1] <= request.slo.tpot_s


def _probe(cell: PaceProbe, python: Path | None) -> Figures:
    """Returns the mean seconds per token of both simulators for one engine and the same requests."""
    drawn = CELLS[0].workload(SAMPLE_S, SAMPLE)
    prompt, output = PROBE_TOKENS
    requests = tuple(
        replace(each, output_tokens=output, request=replace(each.request, prompt_tokens=prompt, arrival_s=0.0))
        for each in drawn.requests[: cell.count]
    )
    engine = next(kind for kind in kinds() if kind.gpus == cell.cards)
    ours = served(Way.FCFS, replace(drawn, requests=requests), [engine], Split(), 1)
    theirs = [times[1] for times in predicted(python, cell.cards, 1, requests) if times is not None]
    return {"ours_s": fmean(each.tpot_s or 0.0 for each in ours), "theirs_s": fmean(theirs)}


def plan_from(document: dict[str, Any]) -> JudgedPlan:
    return JudgedPlan(tuple(document["cards"]), tuple(document["cuts_s"]), tuple(document["counts"]))


def searches_of(cell: JudgedCell) -> list[OurSearch | OutsideSearch]:
    """Returns the searches for a cell. AISimulate's has one SLA: with two classes it is asked for all requests under
    the strict one, and for each class by itself on what the other leaves."""
    found: list[OurSearch | OutsideSearch] = [
        OurSearch(cell=cell), OutsideSearch(cell=cell, part=WHOLE, least=cell.cards, most=cell.cards)
    ]  # fmt: skip
    return found if len(cell.slos_s) == 1 else [*found, *_searches_apart(cell)]


def _searches_apart(cell: JudgedCell) -> list[OutsideSearch]:
    fewest = kinds()[0].gpus
    return [OutsideSearch(cell=cell, part=part, least=1, most=cell.cards - fewest) for part in range(2)]


def plans_of(cell: JudgedCell, found: Finished) -> dict[str, JudgedPlan]:
    """Returns the plans that were searched for, by who made them; none until all searches of the cell are finished."""
    done = {search: found.get(search) for search in searches_of(cell)}
    if any(each is None for each in done.values()):
        return {}
    figures = [each for each in done.values() if each is not None]
    plans = {OURS: plan_from(figures[0]["plan"]), SINGLE: _best(_shapes(figures[1]))}
    if len(cell.slos_s) > 1:
        plans[APART] = divided(_shapes(figures[2]), _shapes(figures[3]), cell)
    return plans


def _shapes(figures: Figures) -> list[OutsideShape]:
    return [OutsideShape(**each) for each in figures["shapes"]]


def _best(shapes: Sequence[OutsideShape]) -> JudgedPlan:
    return JudgedPlan((shapes[0].tensor,) * shapes[0].replicas)


def divided(strict: Sequence[OutsideShape], lax: Sequence[OutsideShape], cell: JudgedCell) -> JudgedPlan:
    """Returns the two shapes, one a class, that together fit the cards and have the most requests on time by what
    AISimulate's searches said of each. Raises ValueError if no two fit."""
    pairs = [(a, b) for a, b in product(strict, lax) if a.cards + b.cards <= cell.cards]
    if not pairs:
        raise ValueError(f"{cell.title}: no two shapes fit {cell.cards} cards")
    first, last = max(pairs, key=lambda pair: (sum(s.on_time_rps for s in pair), sum(s.goodput for s in pair)))
    cards = (first.tensor,) * first.replicas + (last.tensor,) * last.replicas
    return JudgedPlan(cards, cell.cuts_s, (first.replicas, last.replicas))


def run_of(cell: JudgedCell, plan: JudgedPlan, judge: str, seed: int, found: Finished) -> JudgedRun | None:
    """Returns the run of a plan, for our order with the layout that suits it; None until that is known."""
    if judge == SHIPPED:
        laid_out = found.get(LayoutSearch(cell=cell, plan=plan))
        if laid_out is None:
            return None
        plan = plan_from(laid_out["plan"])
    return JudgedRun(cell=cell, plan=plan, judge=judge, seed=seed)


def cells(options: Options, found: Finished) -> Iterator[Sequence[SecondJudgeCell]]:
    """Yields the searches of a cell, its layouts and its runs, cell by cell, and then the probes."""
    for cell in CELLS:
        yield searches_of(cell)
        plans = list(dict.fromkeys(plans_of(cell, found).values()))
        yield [LayoutSearch(cell=cell, plan=plan) for plan in plans]
        runs = [run_of(cell, p, j, seed, found) for seed in options.numbers for p in plans for j in JUDGES]
        yield [run for run in runs if run is not None]
    yield [PaceProbe(cards=cards, count=count) for cards, count in PROBES]

"""The process of a search for plans: `python -m hmas.sim.searched_plans` reads a question from its standard input,
gives way to everything else on the machine, and writes the plans that it found to its standard output.

The question is one line of JSON, a `PlanQuestion`; the rows of the past requests follow, a line each, pool by pool.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from pydantic import TypeAdapter

from hmas.contracts.pool_plan import Budget, Catalogue, ExpectedShare, PlanCandidate, PoolPlan
from hmas.laws.placement.demand import PoolDemand
from hmas.laws.placement.past_demand import demand_in
from hmas.laws.placement.plan_search import PlacementFound, PoolValue, SearchConfig, search
from hmas.laws.request_rows import RequestRow, parse_row
from hmas.sim.quick import QuickValue

BoundLaw = Callable[[Sequence[PoolDemand], Catalogue, Sequence[Budget]], float]
SeededValue = Callable[[int], PoolValue]  # what a pool's engines are valued by, under one draw of predicted lengths
MAX_ROWS = 400_000
MOST_REQUESTS = 3000  # of a pool by which its engines are valued: the last ones, so that a search takes seconds
SEEDS = (1, 2, 3)  # of the errors of predicted lengths, by which a plan is compared with what runs
ERROR = 0.02  # by which such a comparison may be off beyond that; docs/results/evaluators.md has what was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """What engines the pools of `standing`, the plan that runs now, should have, judged by the last `window_s` seconds
    of their past. `rows` says how many requests follow of each of them."""

    standing: tuple[PoolPlan, ...]
    catalogue: Catalogue
    budgets: tuple[Budget, ...]
    window_s: float
    rows: tuple[int, ...]


_QUESTION = TypeAdapter(PlanQuestion)
_ANSWER = TypeAdapter(tuple[PlanCandidate, ...])


def answer(question: PlanQuestion, pasts: Sequence[Sequence[RequestRow]]) -> tuple[PlanCandidate, ...]:
    """Searches in this process. Returns the plan that was found, none if that is what runs. Raises ValueError if the
    question cannot be answered."""
    catalogue = question.catalogue
    demands = [
        demand_in(_last(rows), plan.pool, catalogue.named(plan.groups[0].type).model, question.window_s)
        for plan, rows in zip(question.standing, pasts, strict=True)
    ]
    found = search(demands, catalogue, question.budgets, QuickValue(seed=SEEDS[0]), SearchConfig(), _bound())
    standing, budgets = question.standing, question.budgets
    return candidates_in(found, standing, demands, catalogue, budgets, lambda seed: QuickValue(seed=seed))


def _last(rows: Sequence[RequestRow]) -> list[RequestRow]:
    return sorted(rows, key=lambda row: row.arrival_s)[-MOST_REQUESTS:]


def candidates_in(
    found: PlacementFound,
    standing: tuple[PoolPlan, ...],
    demands: Sequence[PoolDemand],
    catalogue: Catalogue,
    budgets: Sequence[Budget],
    value: SeededValue,
) -> tuple[PlanCandidate, ...]:
    """Returns the plan that was found for the demands of the pools of `standing`, in their order; none if that is what
    runs."""
    chosen = found.one_type if found.one_type_is_enough else found.best
    plans = tuple(each.plan for each in chosen.pools)
    if plans == standing or not all(plan.groups for plan in plans):
        return ()
    return (_candidate(standing, demands, catalogue, value, plans, found.bound),)


def _bound() -> BoundLaw | None:
    """Returns what computes the bound; None where the extra `plan` is not installed, which a plan does not need."""
    try:
        from hmas.laws.placement.fluid_bound import fluid_bound
    except ImportError:
        return None
    return fluid_bound


def _candidate(
    standing: Sequence[PoolPlan],
    demands: Sequence[PoolDemand],
    catalogue: Catalogue,
    value: SeededValue,
    plans: tuple[PoolPlan, ...],
    bound: float | None,
) -> PlanCandidate:
    def share(demand: PoolDemand, plan: PoolPlan, seed: int) -> float:
        instances = [catalogue.named(group.type) for group in plan.groups for _ in range(group.count)]
        return value(seed)(demand, instances, plan.split)

    expected = tuple(
        _expected(demand.pool, [(share(demand, plan, seed), share(demand, old, seed)) for seed in SEEDS])
        for demand, plan, old in zip(demands, plans, standing, strict=True)
    )
    total = sum(each.rate_rps for each in demands)
    now, then = (
        sum(demand.rate_rps * share for demand, share in zip(demands, shares, strict=True)) / total
        for shares in ([each.before for each in expected], [each.share for each in expected])
    )
    return PlanCandidate(
        plans=plans,
        expected=expected,
        bound=1.0 if bound is None else bound,
        reason=f"{then:.1%} on time expected, {now:.1%} of what runs",
    )


def _expected(pool: str, pairs: Sequence[tuple[float, float]]) -> ExpectedShare:
    """Returns the share of a pool's requests that a plan is expected to have on time beside that of what runs, by the
    shares of both under the same errors of predicted lengths."""
    before = sum(now for _, now in pairs) / len(pairs)
    gains = [then - now for then, now in pairs]
    return ExpectedShare(
        pool=pool,
        share=sum(then for then, _ in pairs) / len(pairs),
        low=max(0.0, before + min(gains) - ERROR),
        high=min(1.0, before + max(gains) + ERROR),
        before=before,
    )


def main(source: BinaryIO, sink: BinaryIO) -> None:
    os.nice(19)
    gc.freeze()
    question = _QUESTION.validate_json(source.readline())
    lines = islice(source, MAX_ROWS)
    pasts = [[parse_row(line) for line in islice(lines, count)] for count in question.rows]
    sink.write(_ANSWER.dump_json(answer(question, pasts)))


if __name__ == "__main__":
    try:
        main(sys.stdin.buffer, sys.stdout.buffer)
    except (ValueError, OSError) as error:
        sys.exit(f"{error}")

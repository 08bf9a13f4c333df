"""What a request costs on one engine, and what it costs where no engine is in question.

An engine that is chosen, or on which a request runs, is judged by the costs of its own kind (`cost_on`). What waits,
and a worker that a gateway compares with others, is judged by the harmonic mean over the engines that may serve it
(`cost_among`): N engines of these costs end as many requests in a second as N engines of that one cost would. So a
backlog in these seconds, over the number of engines, is the time until it is served. Of one kind it is that kind's.
"""

from collections.abc import Collection, Sequence

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.request import Cost, KindCost


def cost_on(costs: Sequence[KindCost], kind: EngineKind) -> Cost:
    """Returns the cost on an engine of that kind; of a kind that was not predicted, the mean of all that were."""
    if len(costs) > 1:
        for each in costs:
            if each.kind == kind:
                return each.cost
    return cost_among(costs, ())


def cost_among(costs: Sequence[KindCost], kinds: Collection[EngineKind]) -> Cost:
    """Returns the harmonic mean of the costs over engines of these `kinds`, one for each engine; those that were not
    predicted are left out, and if none was, all that were predicted count. There must be at least one cost."""
    if len(costs) == 1:
        return costs[0].cost
    known = {each.kind: each.cost for each in costs}
    of_engines = [known[kind] for kind in kinds if kind in known] or list(known.values())
    if len(of_engines) == 1:
        return of_engines[0]
    return Cost(_harmonic([each.ttft_s for each in of_engines]), _harmonic([each.tpot_s for each in of_engines]))


def _harmonic(times_s: Sequence[float]) -> float:
    return len(times_s) / sum(1.0 / each for each in times_s) if all(times_s) else 0.0


def kinds_of(engines: Collection[EngineKind]) -> tuple[EngineKind, ...]:
    """Returns the kinds of `engines` for `cost_among`: one for each engine, or one alone if all are of the same."""
    return tuple(engines) if len(set(engines)) > 1 else tuple(engines)[:1]

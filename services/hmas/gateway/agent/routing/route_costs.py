"""What a request would cost at each of the workers among which its gateway chooses."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from hmas.contracts.gateway import RouteChosen
from hmas.gateway.agent.pools.workers import Appraisal, KnownWorker


@dataclass(slots=True)
class ComparedLoad:
    """What all workers that are compared have to do. `workers`: how many they are. `requests`: how many they have.
    `waiting`: how many of these wait for an engine, in the mean. `least_s`: the least time in which one of the workers
    has served all that it has. `heard_s`: when the one was heard of that was silent longest, -inf if one has no working
    engine."""

    workers: int
    requests: int
    waiting: float
    least_s: float
    heard_s: float


@dataclass(slots=True)
class RouteCosts:
    """What one request would cost at each of `workers`, in columns of their order: the seconds in all, of which the
    wait, the prefill and what others lose (`load_s`), and the tokens of its prompt that the worker is taken to hold."""

    workers: Sequence[KnownWorker]
    total_s: list[float]
    wait_s: list[float]
    prefill_s: list[float]
    load_s: list[float]
    cached_tokens: list[int]

    def home(self, whole: int, owner: KnownWorker | None) -> int | None:
        """Returns the place of the worker that the request is at home at: the one that holds most of the `whole`
        prompt or, where that is no more than half of it, the `owner`, which its job hashes to. None: the owner is not
        among them."""
        cached = self.cached_tokens
        most = max(cached)
        if most * 2 <= whole:
            return next((place for place, worker in enumerate(self.workers) if worker is owner), None)
        if cached.count(most) == 1:
            return cached.index(most)
        return min((place for place, tokens in enumerate(cached) if tokens == most), key=self.total_s.__getitem__)

    def chosen(self, request_id: str, worker: KnownWorker) -> RouteChosen:
        """Returns what is told of the choice of `worker`; of equally cheap ones the first stays first."""
        ranked = sorted(range(len(self.total_s)), key=self.total_s.__getitem__)
        return RouteChosen(
            request_id=request_id,
            worker=worker.name,
            workers=tuple([self.workers[place].name for place in ranked]),
            wait_s=tuple([self.wait_s[place] for place in ranked]),
            prefill_s=tuple([self.prefill_s[place] for place in ranked]),
            load_s=tuple([self.load_s[place] for place in ranked]),
            cached_tokens=tuple([self.cached_tokens[place] for place in ranked]),
        )


def compared_load(appraisals: Sequence[Appraisal]) -> ComparedLoad:
    requests, waiting, least_s, heard_s = 0, 0.0, inf, inf
    for each in appraisals:
        requests += each.requests
        waiting += each.waiting
        if each.drain_s < least_s:
            least_s = each.drain_s
        if each.alive_s < heard_s:
            heard_s = each.alive_s
    return ComparedLoad(len(appraisals), requests, waiting / len(appraisals), least_s, heard_s)

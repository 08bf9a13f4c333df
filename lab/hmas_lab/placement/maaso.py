"""MaaSO's placer (section IV-E): Algorithm 1 fills a sub-cluster greedily, Algorithm 2 divides the cards between one
sub-cluster for strict and one for lax requests.

The listings of both are lost from the text that we have; this follows their description. A configuration is a number
of cards (tensor parallelism) and a batch limit, and all pools of a sub-cluster share one. Scores of the sub-clusters
are summed as they are, without the weight of their requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import ceil, log

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Group, InstanceType, PoolPlan
from hmas.contracts.request import Slo
from hmas.sim.workload import OfferedRequest
from hmas_lab.placement.one_type import PoolKinds
from hmas_lab.placement.slots import ServingScore, SlotTally, context_tokens, slot_run, speeds_s, total

Requests = Mapping[str, Sequence[OfferedRequest]]  # of each pool, in order of arrival
Configuration = tuple[int, int]  # cards and batch limit of an instance


def pace_slo_s(slo: Slo, output_tokens: int) -> float:
    """Returns the time in s that an SLO leaves for each token: the stated one, or the deadline over the tokens."""
    return slo.ttlt_s / output_tokens if slo.whole and slo.ttlt_s is not None else slo.tpot_s


@dataclass(frozen=True, slots=True)
class SubCluster:
    """What Algorithm 1 puts on `cards` cards, all of one configuration: the number of instances of each pool, and the
    score of its requests under them."""

    cards: int = 0
    score: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    configuration: Configuration | None = None


class Placer:
    """Both algorithms for pools whose instance types are `kinds`, one for each number of cards and batch limit that may
    be used, judged by slots under the weights `score`. `fastest_s` is the time of a token, in s, that counts as full
    speed in a pool: that of its fastest type alone."""

    def __init__(self, kinds: PoolKinds, score: ServingScore) -> None:
        self._kinds = {pool: {(k.gpus, k.max_num_seqs): k for k in own} for pool, own in kinds.items()}
        self._score = score
        self._fastest_s = {pool: min(k.step.step_s(0, 1, 0, 0.0) for k in own) for pool, own in kinds.items()}

    def filled(self, requests: Requests, gpus: int) -> list[SubCluster]:
        """Algorithm 1: returns the best sub-cluster for these requests on at most 0, 1 ... `gpus` cards."""
        best = [SubCluster(score=self._score.of(self._nothing(requests)))] + [SubCluster()] * gpus
        for configuration in self._candidates(requests):
            for found in self._grown(requests, configuration, gpus):
                best[found.cards] = max(best[found.cards], found, key=lambda each: each.score)
        for cards in range(1, gpus + 1):
            if best[cards].score <= best[cards - 1].score:
                best[cards] = best[cards - 1]
        return best

    def placed(self, requests: Requests, gpus: int, alone_s: Mapping[str, float]) -> tuple[PoolPlan, ...]:
        """Algorithm 2: returns the plans of all pools, with the lax requests' share of the cards as the most that their
        sub-cluster may have. `alone_s` is each pool's tau, in s. Where one sub-cluster for all requests scores as
        much, all share it."""
        factors = {pool: _factors(own, alone_s[pool]) for pool, own in requests.items()}
        cut = best_cut([factor for own in factors.values() for factor in own])
        strict, lax = (
            {pool: [r for r, f in zip(own, factors[pool], strict=True) if (f <= cut) is wanted]
             for pool, own in requests.items()}
            for wanted in (True, False)
        )  # fmt: skip
        number = sum(map(len, requests.values()))
        most_lax = min(gpus, ceil(gpus * sum(map(len, lax.values())) / number)) if number else 0
        best, whole = None, self.filled(requests, gpus)[gpus]
        floor = self._floor(requests, strict, whole)
        for of_strict, of_lax in _pairs(self.filled(strict, gpus), self.filled(lax, most_lax), gpus):
            if of_strict.score + of_lax.score > floor:
                floor, best = of_strict.score + of_lax.score, (of_strict, of_lax)
        if best is None:
            return tuple(self._plan(pool, (whole,), 0.0) for pool in requests)
        return tuple(self._plan(pool, best, cut * alone_s[pool]) for pool in requests)

    def _candidates(self, requests: Requests) -> list[Configuration]:
        """Returns the configurations that are left when the tree is pruned (section IV-D). A number of cards must be
        faster than every lower one for some pool. A batch limit must keep the SLO of some request when it is full, and
        of limits that keep as many the highest is left."""
        found: dict[Configuration, None] = {}
        for pool, own in self._kinds.items():
            slos = sorted(pace_slo_s(r.slo, r.output_tokens) for r in requests[pool])
            fastest = float("inf")
            for cards in sorted({cards for cards, _ in own}):
                limits = sorted((kind for (c, _), kind in own.items() if c == cards), key=lambda k: -k.max_num_seqs)
                if (alone := limits[0].step.step_s(0, 1, 0, 0.0)) >= fastest or not slos:
                    continue
                fastest, kept = alone, 0
                for kind in limits:
                    full_s = speeds_s(kind, context_tokens(requests[pool]))[-1]
                    if (now := sum(full_s <= slo_s for slo_s in slos)) > kept:
                        kept = now
                        found[cards, kind.max_num_seqs] = None
        return list(found)

    def _grown(self, requests: Requests, configuration: Configuration, gpus: int) -> list[SubCluster]:
        """Adds instances of a configuration one by one, each to the pool with the most requests unserved. A pool for
        which one more does not raise the score is saturated and gets no more."""
        own = {pool: kinds[configuration] for pool, kinds in self._kinds.items() if configuration in kinds}
        tallies = {pool: SlotTally(len(r)) for pool, r in requests.items()}
        counts, found = dict.fromkeys(own, 0), list[SubCluster]()
        score, used, saturated = self._score.of(self._sum(tallies)), 0, set[str]()
        while used + configuration[0] <= gpus and (open_pools := [pool for pool in own if pool not in saturated]):
            pool = max(open_pools, key=lambda each: tallies[each].unserved)
            tally = self._run(pool, requests[pool], own[pool], counts[pool] + 1)
            if (now := self._score.of(self._sum({**tallies, pool: tally}))) > score:
                score, used = now, used + configuration[0]
                tallies[pool] = tally
                counts[pool] += 1
                found.append(SubCluster(used, score, dict(counts), configuration))
            else:
                saturated.add(pool)
        return found

    def _run(self, pool: str, requests: Sequence[OfferedRequest], kind: InstanceType, count: int) -> SlotTally:
        return total(slot_run(requests, ((kind, count),), self._fastest_s[pool]))

    def _floor(self, requests: Requests, strict: Requests, whole: SubCluster) -> float:
        """Returns the sum of the scores of the strict and of the lax requests where one sub-cluster serves them all."""
        parts = [SlotTally(), SlotTally()]
        for pool, own in requests.items():
            kind = self._kinds[pool].get(whole.configuration) if whole.configuration else None
            deployed = ((kind, whole.counts[pool]),) if kind else ()
            names = {each.id for each in strict[pool]}
            for offered, tally in zip(own, slot_run(own, deployed, self._fastest_s[pool]), strict=True):
                parts[offered.id not in names] += tally
        return sum(map(self._score.of, parts))

    def _nothing(self, requests: Requests) -> SlotTally:
        return SlotTally(sum(map(len, requests.values())))

    def _sum(self, tallies: Mapping[str, SlotTally]) -> SlotTally:
        return total(tallies.values())

    def _plan(self, pool: str, parts: Sequence[SubCluster], cut_s: float) -> PoolPlan:
        used = [part for part in parts if part.configuration is not None and part.counts.get(pool)]
        groups = tuple(
            Group(self._kinds[pool][part.configuration].name, part.counts[pool]) for part in used if part.configuration
        )
        split = Split((cut_s,), tuple(group.count for group in groups)) if len(groups) == 2 else Split()
        return PoolPlan(pool=pool, groups=groups, split=split)


def _pairs(strict: Sequence[SubCluster], lax: Sequence[SubCluster], gpus: int) -> list[tuple[SubCluster, SubCluster]]:
    """Returns all pairs of sub-clusters that fit on the cards, those with more cards for the strict one last."""
    return [(strict[own], lax[min(gpus - own, len(lax) - 1)]) for own in range(gpus + 1)]


def _factors(requests: Sequence[OfferedRequest], alone_s: float) -> list[float]:
    return [pace_slo_s(each.slo, each.output_tokens) / alone_s for each in requests]


def best_cut(factors: Sequence[float]) -> float:
    """Returns the largest SLO factor of a strict request, where requests fall into two sets whose logarithms vary the
    least around their means: the paper says only that requests are classified by their SLO. Raises ValueError without
    requests."""
    logs = [log(factor) for factor in sorted(factors)]
    sums = [0.0, *accumulate(logs)]
    number, total = len(logs), sums[-1]
    if not logs:
        raise ValueError("there is no request to classify: give the sample of requests that a plan is made for")

    def between(first: int) -> float:  # the part of the variance that the two means explain
        return sums[first] ** 2 / first + (total - sums[first]) ** 2 / (number - first)

    return sorted(factors)[max(range(1, number), key=between, default=1) - 1]


def batch_limited(kinds: PoolKinds, limits: Sequence[int]) -> dict[str, tuple[InstanceType, ...]]:
    """Returns each type with each of the batch `limits` that it can hold, by names of their own."""
    return {
        pool: tuple(
            replace(kind, name=f"{kind.name}-b{limit}", max_num_seqs=limit)
            for kind in own
            for limit in limits
            if limit <= kind.max_num_batched_tokens
        )
        for pool, own in kinds.items()
    }

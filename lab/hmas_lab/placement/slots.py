"""MaaSO's simulator, which counts slots in place of tokens, and its serving score (section V-A and Eq. 6 to 8).

An instance with the batch limit B has B slots. A request takes a slot that is free when it comes, or else the one that
is free first, and decodes at the speed that the instance has with so many sequences as then run. It is refused if no
instance would meet its SLO. Neither prefill nor what a request costs those beside it is seen, as in the paper. The
speed with W sequences, Eq. 1 of the paper, is that of the step law: both interpolate alike, and this one needs no fit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from statistics import fmean

from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.request import Slo
from hmas.sim.workload import OfferedRequest

PATIENCE_S = 10.0  # a wait for the first token that scores nothing: "unacceptable" in section V-B
Deployed = tuple[tuple[InstanceType, int], ...]  # instance types, and how many of each


@dataclass(frozen=True, slots=True)
class SlotTally:
    """What slots make of `requests`: so many are `met`; `speed` and `promptness` are sums over them of a request's
    speed, as a share of the fastest, and of the part of `PATIENCE_S` that it did not wait. A refused one adds none."""

    requests: int = 0
    met: int = 0
    speed: float = 0.0
    promptness: float = 0.0

    def __add__(self, other: "SlotTally") -> "SlotTally":
        return SlotTally(
            self.requests + other.requests, self.met + other.met,
            self.speed + other.speed, self.promptness + other.promptness,
        )  # fmt: skip

    @property
    def unserved(self) -> int:
        return self.requests - self.met


@dataclass(frozen=True, slots=True)
class ServingScore:
    """MaaSO's weights (Eq. 6): `alpha` for SLOs, and of the rest `beta` for speed against latency. Its text has lost
    the values; these keep its order of priorities. With alpha 1 it is MaaSO*."""

    alpha: float = 0.8
    beta: float = 0.5

    def of(self, tally: SlotTally) -> float:
        """Returns the score, 0 to 1; 0 where nothing is offered."""
        if not tally.requests:
            return 0.0
        comfort = self.beta * tally.speed + (1.0 - self.beta) * tally.promptness
        return (self.alpha * tally.met + (1.0 - self.alpha) * comfort) / tally.requests


def context_tokens(requests: Sequence[OfferedRequest]) -> float:
    """Returns the mean tokens of context of a sequence that decodes one of the `requests`, of which there is one."""
    return fmean(each.request.prompt_tokens + each.output_tokens / 2 for each in requests)


def speeds_s(kind: InstanceType, context: float) -> list[float]:
    """Returns the time in s of a token with 0, 1 ... B sequences of that mean `context`."""
    return [kind.step.step_s(0, w, round(w * context), 0.0) for w in range(kind.max_num_seqs + 1)]


def meets(slo: Slo, wait_s: float, token_s: float, tokens: int) -> bool:
    """Tells whether a request that waits `wait_s` and then takes `token_s` for each of its tokens is on time."""
    if slo.ttlt_s is not None and wait_s + token_s * tokens > slo.ttlt_s:
        return False
    return slo.whole or (wait_s <= slo.ttft_s and token_s <= slo.tpot_s)


class SlotInstance:
    """The slots of one instance, whose tokens take `steps_s`, by the number of sequences."""

    def __init__(self, steps_s: Sequence[float]) -> None:
        self._steps_s = steps_s
        self._ends_s: list[float] = []  # of the slots in use

    def offer(self, now_s: float) -> tuple[float, int, float]:
        """Returns for a request that comes now when it would start, beside how many others, and the time of its
        tokens."""
        while self._ends_s and self._ends_s[0] <= now_s:
            heappop(self._ends_s)
        running = len(self._ends_s)
        if running < len(self._steps_s) - 1:
            return now_s, running, self._steps_s[running + 1]
        return self._ends_s[0], running, self._steps_s[-1]

    def take(self, end_s: float) -> None:
        """Lets a request that was offered have its slot until `end_s`."""
        if len(self._ends_s) < len(self._steps_s) - 1:
            heappush(self._ends_s, end_s)
        else:
            heapreplace(self._ends_s, end_s)


def slot_run(requests: Sequence[OfferedRequest], deployed: Deployed, fastest_s: float) -> list[SlotTally]:
    """Serves requests of one pool, in order of arrival, on slots, and returns the tally of each. Of the instances that
    keep a request's SLO, the one where it starts first takes it, with the fewest others. `fastest_s` is the time of a
    token that counts as full speed."""
    if not requests:
        return []
    context = context_tokens(requests)
    instances = [SlotInstance(steps) for kind, n in deployed for steps in (speeds_s(kind, context),) for _ in range(n)]
    return [_served(offered, instances, fastest_s) for offered in requests]


def _served(offered: OfferedRequest, instances: Sequence[SlotInstance], fastest_s: float) -> SlotTally:
    now_s, best = offered.request.arrival_s, None
    for number, instance in enumerate(instances):
        start_s, beside, token_s = instance.offer(now_s)
        key = start_s, beside, number
        if meets(offered.slo, start_s - now_s, token_s, offered.output_tokens) and (best is None or key < best[0]):
            best = key, instance, token_s
    if best is None:
        return SlotTally(1)
    (start_s, _, _), instance, token_s = best
    instance.take(start_s + token_s * offered.output_tokens)
    return SlotTally(1, 1, min(1.0, fastest_s / token_s), max(0.0, 1.0 - (start_s - now_s) / PATIENCE_S))


def total(tallies: Iterable[SlotTally]) -> SlotTally:
    return sum(tallies, SlotTally())

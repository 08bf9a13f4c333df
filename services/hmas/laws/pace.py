"""How fast a class of requests runs on its engines, in closed form, and which split of a pool keeps the most on time.

An engine's step takes s = base + sequence·R + context·K + prompt·P seconds, with R the sequences that decode in it, K
the tokens of context that they read and P the prompt tokens computed beside them: the pace law, as measured. Let
requests come to an engine at r per second, with p prompt and o output tokens. By Little's law R = r·o·s, and
likewise K = r·s·(p·o + o²/2) and P = r·p·s. So s = base + s·r·w, with a work of

    w = sequence·o + context·(p·o + o²/2) + prompt·p

seconds per request, and the fixed point is s = base / (1 - r·w). Only means over a class enter, so that a joint
histogram of lengths need not be kept: its moments are enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import erf, log, sqrt

from hmas.contracts.control import MAX_CUTS, Split
from hmas.contracts.views import DemandView, PaceView

MIXED_SPLIT = Split()
BORDERS = 8
Offered = tuple[DemandView, float]  # requests of a kind, and their rate per second


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceConfig:
    """The accuracy of the model. `spread`: standard deviation of the logarithm of a request's time per token over the
    mean step. `step`: ratio of two paces that are tried one after the other. `paces`: how many are tried."""

    spread: float = 0.15
    step: float = 1.08
    paces: int = 40


@dataclass(frozen=True, slots=True)
class Served:
    """What a class is expected to keep on time: requests per second, at a step of `step_s` seconds, with `share` of its
    requests served in time for their first token."""

    on_time_rps: float
    step_s: float
    share: float


def work_s(demand: DemandView, pace: PaceView) -> float:
    """Returns w, the seconds of engine time beyond the steps' base that one request of `demand` takes in the mean."""
    total = (
        pace.sequence_s * demand.output_tokens
        + pace.context_s * demand.context_tokens
        + pace.prompt_s * demand.prompt_tokens
    )
    return total / demand.requests if demand.requests else 0.0


def served(demands: Sequence[Offered], pace: PaceView, engines: int, config: PaceConfig) -> Served:
    """Returns what `engines` engines keep on time of a class.

    At a step of s seconds an engine takes at most (1 - base/s) seconds of work per second. Of more than that, the same
    share of each kind of request is late. So a slower step keeps more first tokens on time and fewer times per token:
    the best step is taken, but none slower than the fixed point, which is reached without anything being late.

    Orders for overload give up the costliest requests first. Counting on that here makes an overloaded engine look far
    better than it is, because those that are given up run as well, later, and slow the others' steps.
    """
    work = sum(work_s(demand, pace) * rate for demand, rate in demands)
    rates: dict[float, float] = {}
    for demand, rate in demands:
        rates[demand.tpot_slo_s] = rates.get(demand.tpot_slo_s, 0.0) + rate
    best = Served(0.0, pace.base_s, 0.0)
    step_s = pace.base_s * config.step
    for _ in range(config.paces):
        room = engines * (1.0 - pace.base_s / step_s)
        share = min(1.0, room / work) if work else 1.0
        kept = share * sum(rate * _within(slo_s, step_s, config.spread) for slo_s, rate in rates.items())
        if kept > best.on_time_rps:
            best = Served(kept, step_s, share)
        if room >= work:
            break
        step_s *= config.step
    return best


def _within(slo_s: float, step_s: float, spread: float) -> float:
    """Returns the share of requests whose time per token is at most `slo_s` where it is lognormal around `step_s`."""
    return 0.5 * (1.0 + erf(log(slo_s / step_s) / (spread * sqrt(2.0))))


def expected(demands: Sequence[Offered], pace: PaceView, split: Split, engines: int, config: PaceConfig) -> float:
    """Returns the requests per second that a pool of `engines` engines keeps on time under `split`."""
    if not split.cuts_s:
        return served(demands, pace, engines, config).on_time_rps
    total, low_s = 0.0, 0.0
    for high_s, count in zip((*split.cuts_s, float("inf")), split.engines, strict=True):
        part = [(d, rate) for d, rate in demands if low_s < d.tpot_slo_s <= high_s]
        total += served(part, pace, count, config).on_time_rps
        low_s = high_s
    return total


def best_split(
    demands: Sequence[Offered], pace: PaceView, engines: int, config: PaceConfig, *, classes: int = 2, cuts: int = 12
) -> tuple[Split, float]:
    """Returns the split with the most requests on time, and that number per second, among `mixed` and all divisions
    into at most `classes` classes. At most `cuts` bounds are tried as cuts, and `BORDERS` numbers of engines."""
    best = MIXED_SPLIT, expected(demands, pace, MIXED_SPLIT, engines, config)
    bounds = _bounds(demands, cuts)
    for count in range(1, min(classes, engines, MAX_CUTS + 1)):
        for cuts_s in combinations(bounds, count):
            for bars in combinations(_borders(engines), count):
                counts = tuple(b - a for a, b in zip((0, *bars), (*bars, engines), strict=True))
                split = Split(cuts_s, counts)
                found = expected(demands, pace, split, engines, config)
                if found > best[1]:
                    best = split, found
    return best


def _borders(engines: int) -> list[int]:
    """Returns numbers of engines after which the next class may begin: all of them in a small pool, else some, spread
    evenly, because each is tried with each cut."""
    return sorted({round(k * engines / (BORDERS + 1)) for k in range(1, BORDERS + 1)} & set(range(1, engines)))


def _bounds(demands: Sequence[Offered], most: int) -> list[float]:
    """Returns at most `most` of the TPOT SLOs of `demands`, spread evenly over the requests; never the laxest."""
    rates: dict[float, float] = {}
    for demand, rate in demands:
        rates[demand.tpot_slo_s] = rates.get(demand.tpot_slo_s, 0.0) + rate
    total, below, found = sum(rates.values()), 0.0, list[float]()
    for slo_s in sorted(rates)[:-1]:
        below += rates[slo_s]
        if below * (most + 1) >= (len(found) + 1) * total:
            found.append(slo_s)
    return found[:most]


def mean_pace(paces: Sequence[PaceView], least: int) -> PaceView | None:
    """Returns the mean pace law of a pool's engines, each weighted by its observations; None if fewer than `least` were
    made of some engine, or no engine is known."""
    if not paces or min(pace.observations for pace in paces) < least:
        return None
    total = sum(pace.observations for pace in paces)

    def mean(name: str) -> float:
        return sum(float(getattr(pace, name)) * pace.observations for pace in paces) / total

    return PaceView(
        worker="",
        engine="",
        base_s=mean("base_s"),
        sequence_s=mean("sequence_s"),
        context_s=mean("context_s"),
        prompt_s=mean("prompt_s"),
        observations=total,
    )

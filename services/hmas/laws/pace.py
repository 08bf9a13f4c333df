"""How fast a class of requests runs on its engines, in closed form, and which split of a pool keeps the most on time.

An engine's step takes s = base + sequence·R + context·K + prompt·P seconds, with R the sequences that decode in it, K
the tokens of context that they read and P the prompt tokens computed beside them: the pace law, as measured. Let
requests come to an engine at r per second, with p prompt and o output tokens. By Little's law R = r·o·s, and
likewise K = r·s·(p·o + o²/2) and P = r·p·s. So s = base + s·r·w, with a work of

    w = sequence·o + context·(p·o + o²/2) + prompt·p

seconds per request, and the fixed point is s = base / (1 - r·w). Only means over a class enter, so that a joint
histogram of lengths need not be kept: its moments are enough.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import erf, inf, log, sqrt

from hmas.contracts.control import MAX_CUTS, Split
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.views import DemandView, PaceView
from hmas.laws.layout import natural

MIXED_SPLIT = Split()
BORDERS = 8
Offered = tuple[DemandView, float]  # requests of a kind, and their rate per second


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceConfig:
    """The accuracy of the model. `spread`: standard deviation of the logarithm of a request's time per token over the
    mean step. `step`: ratio of two paces that are tried one after the other. `paces`: how many are tried. `loads`: what
    a minute's demand may be, as shares of the mean. `alike`: ratio of two engines' steps up to which they count as
    equally fast."""

    spread: float = 0.15
    step: float = 1.08
    paces: int = 40
    loads: tuple[float, ...] = (0.75, 1.0, 1.33, 1.6)
    alike: float = 1.25


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


def served(demands: Sequence[Offered], paces: Sequence[PaceView], config: PaceConfig) -> Served:
    """Returns what engines of these `paces` keep on time of a class, each with as many requests as its pace allows.

    At a step of s seconds an engine takes at most (1 - base/s) seconds of work per second. Of more than that, the same
    share of each kind of request is late. So a slower step keeps more first tokens on time and fewer times per token:
    the best step is taken, but none slower than the fixed point, which is reached without anything being late.

    Orders for overload give up the costliest requests first. Counting on that here makes an overloaded engine look far
    better than it is, because those that are given up run as well, later, and slow the others' steps.
    """
    rate = sum(rps for _, rps in demands)
    alike = Counter(paces)
    works = {pace: sum(work_s(demand, pace) * rps for demand, rps in demands) for pace in alike}
    rates: dict[float, float] = {}
    for demand, rps in demands:
        rates[demand.tpot_slo_s] = rates.get(demand.tpot_slo_s, 0.0) + rps
    least_s = min(pace.base_s for pace in alike)
    best = Served(0.0, least_s, 0.0)
    if not rate:
        return best
    step_s = least_s * config.step
    for _ in range(config.paces):
        room = 0.0  # the share of the class that the engines take at that step
        for pace, count in alike.items():
            if step_s > pace.base_s:
                room += count * (1.0 - pace.base_s / step_s) / works[pace] if works[pace] else inf
        share = min(1.0, room)
        kept = share * sum(rps * _within(slo_s, step_s, config.spread) for slo_s, rps in rates.items())
        if kept > best.on_time_rps:
            best = Served(kept, step_s, share)
        if room >= 1.0:
            break
        step_s *= config.step
    return best


def _within(slo_s: float, step_s: float, spread: float) -> float:
    """Returns the share of requests whose time per token is at most `slo_s` where it is lognormal around `step_s`."""
    return 0.5 * (1.0 + erf(log(slo_s / step_s) / (spread * sqrt(2.0))))


def expected(demands: Sequence[Offered], paces: Sequence[PaceView], split: Split, config: PaceConfig) -> float:
    """Returns the requests per second that engines of these `paces` keep on time under `split`, whose classes get them
    in this order. It is the mean over the `loads` that a minute may bring beside the demand's own: a cut that is best
    at one of them alone is not the best."""
    return sum(_at_load(demands, paces, split, config, load) / load for load in config.loads) / len(config.loads)


def _at_load(
    demands: Sequence[Offered], paces: Sequence[PaceView], split: Split, config: PaceConfig, load: float
) -> float:
    total, low_s, first = 0.0, 0.0, 0
    counts = split.engines if split.cuts_s else (len(paces),)
    for high_s, count in zip((*split.cuts_s, inf), counts, strict=True):
        part = [(d, load * rps) for d, rps in demands if low_s < d.tpot_slo_s <= high_s]
        total += served(part, paces[first : first + count], config).on_time_rps
        low_s, first = high_s, first + count
    return total


def best_split(
    demands: Sequence[Offered], paces: Sequence[PaceView], config: PaceConfig, *, classes: int = 2, cuts: int = 12
) -> tuple[Split, float]:
    """Returns the split with the most requests on time, and that number per second, among `mixed` and all divisions
    into at most `classes` classes of engines with these `paces`, in this order. At most `cuts` bounds are tried as
    cuts, and `BORDERS` numbers of engines."""
    engines = len(paces)
    best = MIXED_SPLIT, expected(demands, paces, MIXED_SPLIT, config)
    tried = bounds(demands, cuts)
    for count in range(1, min(classes, engines, MAX_CUTS + 1)):
        for cuts_s in combinations(tried, count):
            for bars in combinations(borders(engines), count):
                counts = tuple(b - a for a, b in zip((0, *bars), (*bars, engines), strict=True))
                split = Split(cuts_s, counts)
                found = expected(demands, paces, split, config)
                if found > best[1]:
                    best = split, found
    return best


def borders(engines: int) -> list[int]:
    """Returns numbers of engines after which the next class may begin: all of them in a small pool, else some, spread
    evenly, because each is tried with each cut."""
    return sorted({round(k * engines / (BORDERS + 1)) for k in range(1, BORDERS + 1)} & set(range(1, engines)))


def bounds(demands: Sequence[Offered], most: int) -> list[float]:
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


def too_slow(demands: Sequence[Offered], steps_s: Sequence[float], config: PaceConfig) -> float:
    """Returns the share of the demand whose TPOT SLO is shorter than what engines' steps take now, in the mean."""
    total = sum(rps for _, rps in demands)
    if not total or not steps_s:
        return 0.0
    kept = (rps * _within(demand.tpot_slo_s, step_s, config.spread) if step_s > 0.0 else rps
            for demand, rps in demands for step_s in steps_s)  # fmt: skip
    return 1.0 - sum(kept) / (total * len(steps_s))


def base_share(demands: Sequence[Offered], paces: Sequence[PaceView], spared: float) -> float:
    """Returns what an engine gives up of its work, at most, to keep its steps as short as the tightest TPOT SLO: the
    part of that SLO that passes in a step without any request, base / SLO, in the mean over engines of these `paces`.
    A share `spared` of the requests may have tighter SLOs."""
    most = spared * sum(rps for _, rps in demands)
    for demand, rps in sorted(demands, key=lambda each: each[0].tpot_slo_s):
        most -= rps
        if most < 0.0:
            return sum(pace.base_s for pace in paces) / (len(paces) * demand.tpot_slo_s)
    return 0.0


def of_kinds(paces: Mapping[str, PaceView], kinds: Mapping[str, EngineKind]) -> dict[str, PaceView]:
    """Returns the mean pace law of its kind for the engine at each place, where one of that kind was measured."""
    by_kind: dict[EngineKind, list[PaceView]] = {}
    for each, pace in paces.items():
        if each in kinds:
            by_kind.setdefault(kinds[each], []).append(pace)
    means = {kind: _mean(known) for kind, known in by_kind.items()}
    return {each: means[kind] for each, kind in kinds.items() if kind in means}


def ranked(paces: Mapping[str, PaceView], places: Sequence[str], config: PaceConfig) -> list[tuple[str, PaceView]]:
    """Returns `places` with their pace laws, those with the shortest step first, and in natural order of their names
    where they are alike.

    Engines whose steps differ by no more than `alike` get their mean law, and one of which nothing was measured that of
    all. `paces` must not be empty.
    """
    mean = _mean(list(paces.values()))
    step_s = {each: _usual_s(paces.get(each, mean)) for each in places}
    found: list[tuple[str, PaceView]] = []
    group: list[str] = []
    for each in sorted(places, key=lambda p: (step_s[p], natural(p))):
        if group and step_s[each] > config.alike * step_s[group[0]]:
            found += _alike(paces, sorted(group, key=natural), mean)
            group = []
        group.append(each)
    return found + _alike(paces, sorted(group, key=natural), mean)


def are_ranked(paces: Mapping[str, PaceView], places: Sequence[str], config: PaceConfig) -> bool:
    """Returns whether none of `places` stands before one whose step is clearly shorter, by more than `alike`. `paces`
    has the law of each."""
    least_s = inf  # of those behind
    for each in reversed(places):
        step_s = _usual_s(paces[each])
        if step_s > config.alike * least_s:
            return False
        least_s = min(least_s, step_s)
    return True


def _alike(paces: Mapping[str, PaceView], places: list[str], mean: PaceView) -> list[tuple[str, PaceView]]:
    known = [paces[each] for each in places if each in paces]
    law = _mean(known) if known else mean
    return [(each, law) for each in places]


def _usual_s(pace: PaceView) -> float:
    """Returns the time of a step with some work of each kind, by which engines are compared."""
    return pace.base_s + 32 * pace.sequence_s + 16_384 * pace.context_s + 64 * pace.prompt_s


def mean_pace(paces: Sequence[PaceView], least: int) -> PaceView | None:
    """Returns the mean pace law of a pool's engines, each weighted by its observations; None if fewer than `least` were
    made of some engine, or no engine is known."""
    return _mean(paces) if paces and min(pace.observations for pace in paces) >= least else None


def _mean(paces: Sequence[PaceView]) -> PaceView:
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

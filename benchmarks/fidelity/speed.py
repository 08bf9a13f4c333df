"""Estimates how fast the machine was during each real run, and which error of the emulated engine remains apart from
that.

The emulated engine's core replays a run in virtual time, with all costs of the fitted profile multiplied by one factor,
chosen so that the median TPOT agrees with the real run's. One factor per run cannot correct a cost model whose terms
are wrong, so the remaining errors of the other figures are those of the model.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf

from benchmarks.fidelity.replays import COMPARED, Seen
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile, StepCostModel
from hmas.engine.core.sequence import EngineRequest
from hmas.laws.scoring import quantile

FACTORS = tuple(0.5 + 0.02 * n for n in range(126))  # 0.5 to 3, the factors tried


@dataclass(frozen=True, slots=True)
class Remainder:
    """The machine's time for the same work during one run, relative to the fitted profile (`factor`), and the remaining
    relative `errors` by figure."""

    factor: float
    errors: dict[str, float]


def remainder(profile: EngineProfile, real: Sequence[Seen]) -> Remainder:
    wanted = figures(real)
    best, least = Remainder(1.0, {}), inf
    for factor in FACTORS:
        found = figures(virtually(scaled(profile, factor), real))
        errors = {name: found[name] / wanted[name] - 1.0 for name in COMPARED}
        if abs(errors["tpot_p50_s"]) < least:
            best, least = Remainder(factor, errors), abs(errors["tpot_p50_s"])
    return best


def scaled(profile: EngineProfile, factor: float) -> EngineProfile:
    cost = StepCostModel(**{name: factor * value for name, value in asdict(profile.cost).items()})
    return replace(profile, cost=cost, request_overhead_s=factor * profile.request_overhead_s)


def virtually(profile: EngineProfile, requests: Sequence[Seen]) -> list[Seen]:
    """Serves the requests by an emulated engine in virtual time and returns them with its times. Raises ValueError if
    one exceeds the profile's limits."""
    core = EngineCore(replace(profile, limits=replace(profile.limits, enable_prefix_caching=False)))
    coming = sorted(range(len(requests)), key=lambda i: requests[i].sent_s, reverse=True)
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    now_s = 0.0
    while True:
        while coming and requests[coming[-1]].sent_s + profile.request_overhead_s <= now_s:
            index = coming.pop()
            core.add(EngineRequest(str(index), requests[index].prompt, requests[index].output))
        plan = core.step_begin(now_s)
        if plan is None:
            if not coming:
                break
            now_s = max(now_s, requests[coming[-1]].sent_s + profile.request_overhead_s)
            continue
        now_s += plan.duration_s
        for request_id in core.step_end().tokens:
            first.setdefault(request_id, now_s)
            last[request_id] = now_s
    if len(last) < len(requests):
        raise ValueError(
            f"{len(requests) - len(last)} of {len(requests)} requests exceed the limits of profile {profile.name!r}"
        )
    return [replace(r, first_s=first[str(i)], last_s=last[str(i)]) for i, r in enumerate(requests)]


def figures(requests: Sequence[Seen]) -> dict[str, float]:
    """Returns the figures `COMPARED` of requests that have all ended."""
    ttft = sorted(r.first_s - r.sent_s for r in requests)
    tpot = sorted((r.last_s - r.first_s) / (r.output - 1) if r.output > 1 else 0.0 for r in requests)
    span_s = max(r.last_s for r in requests) - min(r.sent_s for r in requests)
    values = (
        sum(r.output for r in requests) / span_s,
        quantile(ttft, 0.5), quantile(ttft, 0.95), quantile(tpot, 0.5), quantile(tpot, 0.95),
    )  # fmt: skip
    return dict(zip(COMPARED, values, strict=True))

"""How fast the machine was during each real run, by a fixed piece of work before and after it, and what the emulated
engine says of that run at that speed.

The speed is never taken from the figures that are compared. One factor per run cannot correct a cost model whose terms
are wrong, so the errors are those of the model, and of what changed between the two probes.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

import httpx

from benchmarks.fidelity.replays import COMPARED, Seen
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import EngineRequest
from hmas.laws.scoring import quantile

# The work: so many requests at once, of so many prompt and output tokens; its time is the mean of so many tries. Three
# tries, a second or two, vary more than the machine does, and then the correction adds to the errors.
AT_ONCE, PROMPT, OUTPUT, TRIES = 4, 128, 96, 20
PROBE = f"{AT_ONCE}x{PROMPT}-{OUTPUT}x{TRIES}"  # names the work


@dataclass(frozen=True, slots=True)
class Probes:
    """The seconds that the same work took before a run and after it."""

    before_s: float
    after_s: float

    @property
    def mean_s(self) -> float:
        return fmean((self.before_s, self.after_s))


@dataclass(frozen=True, slots=True)
class EmulatedRun:
    """A real run and its emulation: the machine's time for the same work during the run, relative to the calibrations'
    (`factor`), the `emulated` figures at that speed and their relative `errors`, by figure."""

    factor: float
    emulated: dict[str, float]
    errors: dict[str, float]


async def probe_s(url: str, model: str) -> float:
    """Returns the seconds that the engine takes for the work. Raises httpx.HTTPError if it does not do it."""
    async with httpx.AsyncClient(base_url=url, timeout=120.0) as client:

        async def one(number: int) -> None:
            body = {"model": model, "prompt": [100 + number] * PROMPT, "max_tokens": OUTPUT, "ignore_eos": True}
            (await client.post("/v1/completions", json=body)).raise_for_status()

        async def once() -> float:
            begun = time.perf_counter()
            await asyncio.gather(*map(one, range(AT_ONCE)))
            return time.perf_counter() - begun

        return fmean([await once() for _ in range(TRIES)])


def paired(profile: EngineProfile, real: Sequence[Seen], factor: float) -> EmulatedRun:
    """Emulates a real run on a machine that takes `factor` times as long as the profile says."""
    wanted, found = figures(real), figures(virtually(scaled(profile, factor), real))
    return EmulatedRun(factor, found, {name: found[name] / wanted[name] - 1.0 for name in COMPARED})


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

"""The traces that MaaSO was judged on, four of our own with wide SLOs, and workloads drawn from them.

MaaSO's Table I gives ranges of decode lengths and of SLO factors. A request with factor theta and o tokens is due
kappa * theta * tau * o seconds after its arrival, where tau is the time of a token on an instance without parallelism
that runs nothing else (section III-C). MaaSO gives neither prompts nor an SLO for the first token: the prompts, the
TTFT SLO and kappa are ours, as are equal parts where the table's proportions are blank.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from zlib import crc32

import numpy as np

from hmas.contracts.request import Request, Slo, TaskType
from hmas.contracts.step_cost import StepCostModel
from hmas.sim.workload import OfferedRequest, Workload
from hmas_loadgen.workloads.arrivals import gamma

PROMPT_MEDIAN, PROMPT_SIGMA, PROMPT_LEAST, PROMPT_MOST = 400, 0.8, 8, 8000  # tokens, lognormal
ALONE_CONTEXT = 800  # tokens of context of the sequence whose step is tau
UNSTATED_TTFT_S, UNSTATED_TPOT_S = 6.0, 0.1  # of a request that states its last token alone


@dataclass(frozen=True, slots=True)
class TracePart:
    """A `share` (0 to 1) of a trace's requests: their answers have between `tokens` tokens, and their SLO factors theta
    lie between `factors`. Both are drawn evenly."""

    share: float
    tokens: tuple[int, int]
    factors: tuple[float, float]


SHORT, LONG, TIGHT, LAX = (300, 500), (600, 1000), (0.8, 1.0), (1.2, 1.5)
BRIEF, WIDE = (50, 200), (4.0, 8.0)  # of our own traces
TRACES: dict[str, tuple[TracePart, ...]] = {
    "t1": (TracePart(1.0, (300, 1000), (0.8, 1.5)),),
    "t2": (TracePart(0.5, SHORT, TIGHT), TracePart(0.5, SHORT, LAX)),
    "t3": (TracePart(0.5, SHORT, (0.8, 1.2)), TracePart(0.5, LONG, (0.8, 1.2))),
    "t4": (TracePart(0.5, SHORT, TIGHT), TracePart(0.5, LONG, LAX)),
    "t5": (TracePart(0.34, SHORT, TIGHT), TracePart(0.66, SHORT, LAX)),
    "t6": (TracePart(0.66, SHORT, TIGHT), TracePart(0.34, SHORT, LAX)),
    "t7": (TracePart(0.5, SHORT, TIGHT), TracePart(0.5, SHORT, WIDE)),
    "t8": (TracePart(0.2, SHORT, TIGHT), TracePart(0.8, SHORT, WIDE)),
    "t9": (TracePart(0.5, BRIEF, TIGHT), TracePart(0.5, LONG, WIDE)),
    "t10": (TracePart(0.8, BRIEF, TIGHT), TracePart(0.2, LONG, WIDE)),
    "t9 brief": (TracePart(1.0, BRIEF, TIGHT),),  # the two parts of t9
    "t9 long": (TracePart(1.0, LONG, WIDE),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTraffic:
    """What the clients of one pool ask for: `rate_rps` requests per second of a trace, with gaps whose coefficient of
    variation is `cv`.

    `alone_s` is tau, the time in s of a token on the pool's smallest instance without other requests (`alone_step_s`
    below). The SLOs are `ttft_s` for the first token and kappa * theta * tau for each other one, or for the last token
    alone if `whole`, as MaaSO states them.
    """

    pool: str
    trace: str
    rate_rps: float
    alone_s: float
    cv: float = 1.0
    kappa: float = 1.0
    ttft_s: float = 2.0
    whole: bool = False

    def slo(self, factor: float, tokens: int) -> Slo:
        """Returns the SLO of a request with the SLO factor theta and so many tokens in its answer."""
        tpot_s = self.kappa * factor * self.alone_s
        if self.whole:
            return Slo(UNSTATED_TTFT_S, UNSTATED_TPOT_S, tpot_s * tokens, whole=True)
        return Slo(self.ttft_s, tpot_s)


def alone_step_s(step: StepCostModel) -> float:
    """Returns the seconds of a token on an engine with these steps that runs one sequence (MaaSO's tau)."""
    return step.step_s(0, 1, ALONE_CONTEXT, 0.0)


def traffic_workload(traffic: Sequence[PoolTraffic], seconds: float, seed: int) -> Workload:
    """Draws the requests of all pools over `seconds` seconds, in order of arrival.

    What a pool is offered depends on its own traffic and the seed alone, so that pools can be added. Raises KeyError
    for an unknown trace, and ValueError for a rate or cv that is not above 0.
    """
    requests = [each for own in traffic for each in _drawn(own, seconds, seed)]
    requests.sort(key=lambda offered: offered.request.arrival_s)
    note = "; ".join(f"{t.pool} {t.trace} at {t.rate_rps:g}/s, cv {t.cv:g}, kappa {t.kappa:g}" for t in traffic)
    return Workload("+".join(dict.fromkeys(t.trace for t in traffic)), tuple(requests), seconds, note)


def _drawn(traffic: PoolTraffic, seconds: float, seed: int) -> list[OfferedRequest]:
    rng = np.random.default_rng([seed, crc32(f"{traffic.pool} {traffic.trace}".encode())])
    parts = TRACES[traffic.trace]
    arrivals = gamma(traffic.rate_rps, traffic.cv, seconds, rng)
    chosen = rng.choice(len(parts), size=len(arrivals), p=[part.share for part in parts])
    prompts = np.clip(rng.lognormal(log(PROMPT_MEDIAN), PROMPT_SIGMA, len(arrivals)), PROMPT_LEAST, PROMPT_MOST)
    found = []
    for i, (arrival_s, index, prompt) in enumerate(zip(arrivals, chosen, prompts, strict=True)):
        part = parts[index]
        tokens = int(rng.integers(part.tokens[0], part.tokens[1], endpoint=True))
        slo = traffic.slo(float(rng.uniform(*part.factors)), tokens)
        request = Request(
            id=f"{traffic.pool}-{i:05d}", model=traffic.pool, tenant="default", flow="", prompt_tokens=int(prompt),
            max_tokens=None, stream=True, slo=slo, slo_stated=True, priority=0, weight=1.0, importance=0.75,
            arrival_s=float(arrival_s),
        )  # fmt: skip
        found.append(OfferedRequest(request=request, output_tokens=tokens, slo=slo, task=TaskType.QA))
    return found

"""How many requests of which pace and lengths a pool gets: the joint histogram of needed time per token, prompt and
output length, with the sums that tell what their tokens cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log

from hmas.contracts.telemetry import RequestQueued
from hmas.contracts.views import DemandView

SLO_RATIO = 1.05  # of the ends of a range of TPOT SLOs
_ROUNDING = 1e-9
_P90 = 1.2816  # standard deviations by which a normal variable's 90 % quantile is above its mean

Kind = tuple[int, int, int]  # number of the range of TPOT SLOs, and of those of prompt and output length


@dataclass(slots=True)
class Demand:
    """Sums over the requests of one kind, as in `DemandView`."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: float = 0.0
    context_tokens: float = 0.0

    def merge(self, other: "Demand") -> None:
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.output_tokens += other.output_tokens
        self.context_tokens += other.context_tokens


Demands = dict[Kind, Demand]


def count_demand(demands: Demands, queued: RequestQueued, most: int) -> None:
    """Adds a request with its predicted length, whose spread about the mean is that of its 90 % quantile. Where there
    are `most` kinds already, one of a new kind is left out; so is one whose SLO is not told.

    Requests are counted as they come, not as they settle: those that take longest have not settled when a pool is
    young or full, and they are what fills it.
    """
    prompt, output = queued.prompt_tokens, queued.predicted_output_tokens
    needed_s = queued.needed_tpot_s or queued.tpot_slo_s
    if needed_s <= 0.0 or output <= 0.0:
        return
    slo = ceil(log(needed_s) / log(SLO_RATIO) - _ROUNDING)
    kind = slo, (prompt.bit_length() + 1) // 2, int(output).bit_length()  # prompts by fours, outputs by twos
    demand = demands.get(kind)
    if demand is None:
        if len(demands) >= most:
            return
        demand = demands[kind] = Demand()
    deviation = max(0.0, queued.predicted_output_tokens_p90 - output) / _P90
    squared = output * output + deviation * deviation
    demand.merge(Demand(1, prompt, output, prompt * output + squared / 2.0))


def demand_views(parts: Iterable[Demands], most: int, window_s: float) -> tuple[DemandView, ...]:
    """Returns the sums over all `parts`, which span `window_s` seconds, of the `most` kinds that have the most
    requests; the tightest SLO first."""
    merged: Demands = {}
    for part in parts:
        for kind, demand in part.items():
            merged.setdefault(kind, Demand()).merge(demand)
    frequent = sorted(merged, key=lambda kind: -merged[kind].requests)[:most]
    return tuple(
        DemandView(
            tpot_slo_s=SLO_RATIO ** kind[0],
            rps=merged[kind].requests / window_s,
            requests=merged[kind].requests,
            prompt_tokens=merged[kind].prompt_tokens,
            output_tokens=round(merged[kind].output_tokens),
            context_tokens=merged[kind].context_tokens,
        )
        for kind in sorted(frequent)
    )

"""How many requests of which pace and lengths a pool gets: the joint histogram of TPOT SLO, prompt and output length,
with the sums that tell what their tokens cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log

from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import RequestSettled
from hmas.contracts.views import DemandView

SLO_RATIO = 1.05  # of the ends of a range of TPOT SLOs
LEAST_SEEN = 0.15  # of the window: a kind whose requests take longer than that leaves is not scaled up any more
_ROUNDING = 1e-9

Kind = tuple[int, int, int]  # number of the range of TPOT SLOs, and of those of prompt and output length


@dataclass(slots=True)
class Demand:
    """Sums over the requests of one kind, as in `DemandView`."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    context_tokens: float = 0.0
    took_s: float = 0.0  # from arrival to the last token

    def merge(self, other: "Demand") -> None:
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.output_tokens += other.output_tokens
        self.context_tokens += other.context_tokens
        self.took_s += other.took_s

    def rps(self, window_s: float, age_s: float) -> float:
        """Returns the rate at which such requests come. Of a pool that has served for `age_s` seconds only those can
        have settled that came early enough to be done: the longer they take, the fewer of them have been seen."""
        seen_s = min(window_s, age_s - self.took_s / self.requests)
        return self.requests / max(seen_s, LEAST_SEEN * min(window_s, age_s))


Demands = dict[Kind, Demand]


def count_demand(demands: Demands, settled: RequestSettled, most: int) -> None:
    """Adds a settled request. Where there are `most` kinds already, one of a new kind is left out."""
    counted = settled.outcome is Outcome.FINISHED and settled.output_tokens > 0
    prompt, output = settled.prompt_tokens, settled.output_tokens if counted else settled.predicted_output_tokens
    slo = ceil(log(settled.slo.tpot_s) / log(SLO_RATIO) - _ROUNDING)
    kind = slo, (prompt.bit_length() + 1) // 2, int(output).bit_length()  # prompts by fours, outputs by twos
    demand = demands.get(kind)
    if demand is None:
        if len(demands) >= most:
            return
        demand = demands[kind] = Demand()
    demand.merge(Demand(1, prompt, int(output), prompt * output + output * output / 2.0, settled.last_token_s or 0.0))


def demand_views(parts: Iterable[Demands], most: int, window_s: float, age_s: float) -> tuple[DemandView, ...]:
    """Returns the sums over all `parts`, which span the last `window_s` of the `age_s` seconds since the pool's first
    request, of the `most` kinds that have the most requests; the tightest SLO first."""
    merged: Demands = {}
    for part in parts:
        for kind, demand in part.items():
            merged.setdefault(kind, Demand()).merge(demand)
    frequent = sorted(merged, key=lambda kind: -merged[kind].requests)[:most]
    return tuple(
        DemandView(
            tpot_slo_s=SLO_RATIO ** kind[0],
            rps=merged[kind].rps(window_s, max(age_s, window_s)),
            requests=merged[kind].requests,
            prompt_tokens=merged[kind].prompt_tokens,
            output_tokens=merged[kind].output_tokens,
            context_tokens=merged[kind].context_tokens,
        )
        for kind in sorted(frequent)
    )

"""What a pool is asked for, as a sample of requests, and the moments of it that the pace law reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log

from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.views import DemandView, PaceView
from hmas.laws.pace import Offered

RATIO = 1.05  # of the ends of a range of needed times per token, whose requests the pace law takes for alike
USUAL = (64, 32, 16_384)  # prompt tokens, sequences and context tokens of the step by which types are compared


@dataclass(frozen=True, slots=True)
class SampledRequest:
    """One request of a sample: when it came, in s from the sample's beginning, its lengths in tokens, the time to its
    first token and the time per output token that keep its SLO, both in s."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    ttft_slo_s: float
    tpot_slo_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDemand:
    """The requests for a pool's model that came within `seconds`, in the order of their arrival."""

    pool: str
    model: str
    requests: tuple[SampledRequest, ...]
    seconds: float

    def __post_init__(self) -> None:
        if not self.requests or self.seconds <= 0.0:
            raise ValueError(f"the demand of {self.pool} needs at least one request, and more than 0 seconds")

    @property
    def rate_rps(self) -> float:
        return len(self.requests) / self.seconds


def moments_of(demand: PoolDemand) -> tuple[Offered, ...]:
    """Returns the demand as the pace law takes it: requests whose needed times per token are within `RATIO` together,
    the strictest first."""
    least_s = min(each.tpot_slo_s for each in demand.requests)
    ranges: dict[int, list[SampledRequest]] = {}
    for each in demand.requests:
        ranges.setdefault(ceil(log(each.tpot_slo_s / least_s) / log(RATIO) - 1e-9), []).append(each)
    return tuple(_moments(ranges[number], demand.seconds) for number in sorted(ranges))


def _moments(requests: Sequence[SampledRequest], seconds: float) -> Offered:
    rps = len(requests) / seconds
    view = DemandView(
        tpot_slo_s=max(each.tpot_slo_s for each in requests),
        rps=rps,
        requests=len(requests),
        prompt_tokens=sum(each.prompt_tokens for each in requests),
        output_tokens=sum(each.output_tokens for each in requests),
        context_tokens=sum(each.output_tokens * (each.prompt_tokens + each.output_tokens / 2.0) for each in requests),
    )
    return view, rps


def pace_of(kind: InstanceType) -> PaceView:
    """Returns the pace law of an instance type. The attention within prompts, which a pace law does not have, is left
    out."""
    step = kind.step
    return PaceView(
        worker="", engine=kind.name, base_s=step.c0_s, sequence_s=step.c_d_s, context_s=step.c_k_s,
        prompt_s=step.c_p_s, observations=1,
    )  # fmt: skip


def in_order(kinds: Sequence[InstanceType]) -> tuple[InstanceType, ...]:
    """Returns instance types in the order in which classes get them: those with the shortest steps under `USUAL` load
    first, and by name where these are equal."""
    prompt_tokens, sequences, context_tokens = USUAL
    return tuple(sorted(kinds, key=lambda k: (k.step.step_s(prompt_tokens, sequences, context_tokens, 0.0), k.name)))

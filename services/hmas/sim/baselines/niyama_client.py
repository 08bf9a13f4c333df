"""What a client tells a Niyama engine of a request (§3.2, §3.6): QoS class, deadlines, application, importance."""

from hmas.engine.core.chunking import TokenDeadline
from hmas.sim.baselines.niyama_queue import NiyamaRequest
from hmas.sim.workload import OfferedRequest


def due_s(offered: OfferedRequest) -> float:
    """Of the first token, or of the last where that alone is judged (Niyama Eq. 1 and 3)."""
    slo = offered.slo
    wait_s = slo.ttlt_s if slo.whole and slo.ttlt_s is not None else slo.ttft_s
    return offered.request.arrival_s + wait_s


def cumulative(offered: OfferedRequest, _: float = 0.0) -> NiyamaRequest:
    """Token n is due at arrival + SLO_TTFT + (n - 1) SLO_TBT (Niyama Eq. 2)."""
    return _request(offered, TokenDeadline(offered.slo.tpot_s, due_s(offered)))


def paced(offered: OfferedRequest, _: float = 0.0) -> NiyamaRequest:
    """Token n is due (n - 1) SLO_TPOT after the first token, as H-MAS judges TPOT: time that the first token came early
    is not lent to others."""
    return _request(offered, TokenDeadline(offered.slo.tpot_s))


def _request(offered: OfferedRequest, pace: TokenDeadline) -> NiyamaRequest:
    request = offered.request
    return NiyamaRequest(
        id=request.id,
        prompt_tokens=request.prompt_tokens,
        output_tokens=offered.output_tokens,
        prefix_hashes=offered.prefix_hashes,
        pace=None if offered.slo.whole else pace,
        arrival_s=request.arrival_s,
        due_s=due_s(offered),
        whole=offered.slo.whole,
        application=request.tenant,
        important=request.priority <= 0,
    )

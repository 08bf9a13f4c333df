"""Makes the requests that a client sends to a Niyama engine (Niyama §3.2, §3.6), with their QoS class, deadlines,
application and importance."""

from hmas.engine.core.chunking import TokenDeadline
from hmas.sim.workload import OfferedRequest
from hmas_lab.sim.baselines.niyama_queue import NiyamaRequest


def due_s(offered: OfferedRequest) -> float:
    """Returns the instant in s at which the first token is due, or the last one where the SLO judges only that
    (Niyama Eq. 1 and 3)."""
    slo = offered.slo
    wait_s = slo.ttlt_s if slo.whole and slo.ttlt_s is not None else slo.ttft_s
    return offered.request.arrival_s + wait_s


def cumulative(offered: OfferedRequest, _: float = 0.0) -> NiyamaRequest:
    """Makes a Niyama request whose token n is due at arrival + SLO_TTFT + (n - 1) SLO_TBT (Niyama Eq. 2)."""
    return _request(offered, TokenDeadline(offered.slo.tpot_s, due_s(offered)))


def paced(offered: OfferedRequest, _: float = 0.0) -> NiyamaRequest:
    """Makes a Niyama request whose token n is due (n - 1) SLO_TPOT after its first token, as H-MAS judges TPOT: a first
    token that comes early does not give the later tokens more time."""
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

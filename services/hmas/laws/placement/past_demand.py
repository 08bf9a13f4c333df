"""Past requests as the demand that plans are made for."""

from collections.abc import Sequence

from hmas.contracts.outcome import Outcome
from hmas.laws.placement.demand import PoolDemand, SampledRequest
from hmas.laws.request_rows import RequestRow
from hmas.laws.slo import needed_tpot_s


def demand_in(rows: Sequence[RequestRow], pool: str, model: str, window_s: float) -> PoolDemand:
    """Returns the requests of the last `window_s` seconds of a record. A request that has not ended has its predicted
    length; one that never came to a length, or whose SLO leaves no time for its tokens, is left out. Raises ValueError
    if none is left."""
    last_s = max((row.arrival_s for row in rows), default=0.0)
    first_s = max(last_s - window_s, min((row.arrival_s for row in rows), default=0.0))
    found = [each for row in rows if (each := _sampled(row, first_s)) is not None]
    if not found:
        raise ValueError(f"the record of {pool} has no request with a known length: give one of a pool that served")
    return PoolDemand(pool=pool, model=model, requests=tuple(found), seconds=max(1.0, last_s - first_s))


def _sampled(row: RequestRow, first_s: float) -> SampledRequest | None:
    whole = row.outcome in (None, Outcome.FINISHED)  # a trace tells of no outcome
    tokens = row.output_tokens if whole and row.output_tokens else round(row.predicted_output_tokens)
    if row.arrival_s < first_s or tokens < 1 or row.prompt_tokens < 1:
        return None
    tpot_s = needed_tpot_s(row.slo, tokens, row.slo.ttft_s)
    if tpot_s <= 0.0:
        return None
    return SampledRequest(row.arrival_s - first_s, row.prompt_tokens, tokens, row.slo.ttft_s, tpot_s)

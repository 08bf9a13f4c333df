"""Whether a settled request met its promise, by the one definition in `hmas.laws.scoring`."""

from dataclasses import dataclass

from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.contracts.telemetry import RequestSettled
from hmas.laws.scoring import Settlement, is_ok, service_gain, tpot_ok, ttft_ok

_TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True)
class Verdict:
    """`judged` false: the request says nothing about the quality of service (a client's own fault or choice)."""

    judged: bool
    ok: bool
    ttft_ok: bool
    tpot_ok: bool
    gain: float


def _client_fault(outcome: Outcome) -> bool:
    status = OUTCOME_TABLE[outcome].http_status
    return 400 <= status < 500 and status != _TOO_MANY_REQUESTS and outcome is not Outcome.CANCELLED


def verdict(settled: RequestSettled) -> Verdict:
    """A client that left while its latencies were still good is not counted; one that left before is not OK."""
    row = Settlement(
        settled.request_id, settled.tenant, settled.task, "", settled.outcome, settled.slo, settled.prompt_tokens,
        settled.output_tokens, settled.ttft_s, settled.tpot_s, settled.last_token_s, 0.0,
    )  # fmt: skip
    first, rate = ttft_ok(row), tpot_ok(row)
    withdrawn = settled.outcome is Outcome.CANCELLED and first and rate
    judged = not withdrawn and not _client_fault(settled.outcome)
    return Verdict(judged, is_ok(row), first, rate, service_gain(row))

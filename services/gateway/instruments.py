"""The gateway's Prometheus metrics. Nothing is counted per token frame."""

from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from services.contracts.outcome import Outcome

_TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 6, 8, 12, 20, 40, 80)
_TOTAL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640)

REQUESTS = Counter("hmas_gateway_requests", "Requests that ended, by outcome; pool is empty for unknown models",
                   ["pool", "outcome"])  # fmt: skip
INVALID = Counter("hmas_gateway_invalid_requests", "Requests refused before they were offered to a pool", ["outcome"])
ATTEMPTS = Counter("hmas_gateway_attempts", "Sendings to workers; above the requests: resubmissions, handbacks",
                   ["pool"])  # fmt: skip
RECALLS = Counter("hmas_gateway_recalls", "Queued requests asked back from an overloaded worker")
OUTPUT_TOKENS = Counter("hmas_gateway_output_tokens", "Output tokens of requests that ended", ["pool"])
TTFT = Histogram("hmas_gateway_ttft_seconds", "Arrival to first token, streamed requests", ["pool"],
                 buckets=_TTFT_BUCKETS)  # fmt: skip
TOTAL = Histogram("hmas_gateway_request_seconds", "Arrival to end, finished requests", ["pool"],
                  buckets=_TOTAL_BUCKETS)  # fmt: skip
LIVE = Gauge("hmas_gateway_live_requests", "Requests accepted and not ended")
WORKERS = Gauge("hmas_gateway_workers_connected", "Workers with a stream that stands")
SLOW_CLIENTS = Counter("hmas_gateway_slow_clients", "Answers given up because the client did not read them")
CONNECTIONS_REFUSED = Counter("hmas_gateway_connections_refused", "Connections closed by a bound", ["reason"])
COGNITION_FALLBACKS = Counter("hmas_cognition_fallback", "Requests left to the prior, by reason", ["reason"])
COGNITION_SECONDS = Histogram("hmas_cognition_batch_seconds", "Perception and prediction of one batch",
                              buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2))  # fmt: skip


class PoolInstruments:
    """One pool's children, resolved once."""

    def __init__(self, pool: str) -> None:
        self.attempts = ATTEMPTS.labels(pool)
        self.output_tokens = OUTPUT_TOKENS.labels(pool)
        self.ttft = TTFT.labels(pool)
        self.total = TOTAL.labels(pool)
        self.outcomes = {outcome: REQUESTS.labels(pool, outcome.value) for outcome in Outcome}


@cache
def pool_instruments(pool: str) -> PoolInstruments:
    """Pools are bounded by the model directory."""
    return PoolInstruments(pool)

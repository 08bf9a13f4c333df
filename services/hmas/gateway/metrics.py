"""The gateway's Prometheus metrics. None of them is updated for each token frame, which would cost too much."""

from collections.abc import Callable
from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from hmas.contracts.job import LinkedBy
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import RequestSettled
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.exchange import Exchange
from hmas.gateway.usage.book import Used
from hmas.gateway.witness import Witness
from hmas.laws.scoring import verdict

MAX_KEYS = 1000  # API keys that have series of their own; all further ones are counted under the labels `other`
OTHER = "other"
BYPASS_SHOWN_S = 60.0  # how long an engine counts as in bypass after a gateway last placed a request on it
MAX_TENANTS = 200  # tenants that have series of their own; all further ones are counted under the label `other`
_TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 6, 8, 12, 20, 40, 80)
_TPOT_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.25, 0.5, 1.0)
_TOTAL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640)

REQUESTS = Counter("hmas_gateway_requests", "Requests that ended, by outcome; pool is empty for unknown models",
                   ["pool", "outcome"])  # fmt: skip
INVALID = Counter("hmas_gateway_invalid_requests", "Requests refused before they were offered to a pool", ["outcome"])
ATTEMPTS = Counter("hmas_gateway_attempts", "Requests sent to workers; more than requests, by moves between workers",
                   ["pool"])  # fmt: skip
BYPASS_RUNS = Counter("hmas_gateway_bypass_runs", "Runs that the gateway placed itself because a worker was silent")
BYPASS_ENGINES = Gauge("hmas_gateway_bypass_engines", "Engines in use without their worker, which is silent")
STALLED_RUNS = Counter("hmas_gateway_stalled_runs", "Runs given up because their engine gave no token for too long")
OUTPUT_TOKENS = Counter("hmas_gateway_output_tokens", "Output tokens of requests that ended", ["pool"])
TTFT = Histogram("hmas_gateway_ttft_seconds", "Arrival to first token, streamed requests", ["pool"],
                 buckets=_TTFT_BUCKETS)  # fmt: skip
TPOT = Histogram("hmas_gateway_tpot_seconds", "Time per output token, requests that finished", ["pool"],
                 buckets=_TPOT_BUCKETS)  # fmt: skip
SETTLED = Counter("hmas_gateway_settled", "Requests that ended, by how their SLOs were kept: ok, ttft_missed, "
                  "tpot_missed, ttlt_missed, failed, or unjudged (the client caused the end)",
                  ["pool", "tenant", "task", "verdict"])  # fmt: skip
USAGE_REQUESTS = Counter("hmas_gateway_usage_requests", "Requests that ended, by tenant, API key (its id) and "
                         "how their SLOs were kept", ["tenant", "key", "verdict"])  # fmt: skip
USAGE_TOKENS = Counter("hmas_gateway_usage_tokens", "Tokens of requests that ended, by tenant, API key (its id) and "
                       "kind: prompt, those of it that were cached, or output", ["tenant", "key", "kind"])  # fmt: skip
RELEGATED = Counter("hmas_gateway_relegated", "Requests set aside because they could not be on time", ["pool"])
TOTAL = Histogram("hmas_gateway_request_seconds", "Arrival to end, finished requests", ["pool"],
                  buckets=_TOTAL_BUCKETS)  # fmt: skip
LIVE_REQUESTS = Gauge("hmas_gateway_live_requests", "Requests accepted and not ended")
WORKERS = Gauge("hmas_gateway_workers_connected", "Workers whose stream to this gateway is open")
SLOW_CLIENTS = Counter("hmas_gateway_slow_clients", "Answers given up because the client did not read them")
CONNECTIONS_REFUSED = Counter("hmas_gateway_connections_refused", "Client connections refused, by reason", ["reason"])
JOBS_RUNNING = Gauge("hmas_gateway_jobs_running", "Jobs with a call in flight here")
JOB_CALLS = Counter("hmas_gateway_job_calls", "Requests that came, by how their job was found: declared, prefix, "
                    "thread (the same first message of a user) or new", ["linked"])  # fmt: skip
JOB_TOKENS = Counter("hmas_gateway_job_tokens", "Prompt tokens of calls of jobs that ran, by kind: prompt, or those "
                     "of it that engines had cached", ["kind"])  # fmt: skip
JOBS = Counter("hmas_gateway_jobs", "Jobs of which nothing came for 60 s: on_time or late by the budget that their "
               "client stated, ended without one, or failed (a call did not finish)", ["verdict"])  # fmt: skip
JOB_SECONDS = Histogram("hmas_gateway_job_seconds", "First call to the end of the last one, jobs without a failed call",
                        buckets=(0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280))  # fmt: skip
JOB_STAGES = Histogram("hmas_gateway_job_stages", "Calls of a job", buckets=(1, 2, 3, 5, 8, 13, 21, 34, 55, 89))
# Those that are counted for each request, with their labels resolved once.
_job_calls = {linked: JOB_CALLS.labels(linked.value) for linked in LinkedBy}
_job_prompt_tokens, _job_cached_tokens = JOB_TOKENS.labels("prompt"), JOB_TOKENS.labels("cached")
COGNITION_FALLBACKS = Counter("hmas_cognition_fallback", "Requests without cognition's answer, by reason", ["reason"])
COGNITION_SECONDS = Histogram("hmas_cognition_batch_seconds", "Seconds that cognition took for one batch",
                              buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2))  # fmt: skip


class PoolInstruments:
    """The metrics of one pool with their labels resolved once, because a look-up by label is costly."""

    def __init__(self, pool: str) -> None:
        self.attempts = ATTEMPTS.labels(pool)
        self.output_tokens = OUTPUT_TOKENS.labels(pool)
        self.ttft = TTFT.labels(pool)
        self.total = TOTAL.labels(pool)
        self.outcomes = {outcome: REQUESTS.labels(pool, outcome.value) for outcome in Outcome}


@cache
def pool_instruments(pool: str) -> PoolInstruments:
    """Returns the metrics of `pool`, made at the first call. The model directory bounds the number of pools."""
    return PoolInstruments(pool)


def pool_label(directory: ModelDirectory, pool: str) -> str:
    """Returns the pool as a metric's label, or "" if no such pool is known: clients can invent any number of model
    names, and each label costs memory."""
    return pool if directory.resolve(pool) is not None else ""


class RequestMetrics(Witness):
    """Counts the moments of requests. `clock` is that of their instants."""

    def __init__(self, directory: ModelDirectory, clock: Callable[[], float]) -> None:
        self._directory, self._clock = directory, clock
        self._bypassed: dict[tuple[str, str], float] = {}  # when a request was last placed without a worker, by engine
        BYPASS_ENGINES.set_function(self._bypass_engines)

    def submitted(self, exchange: Exchange) -> None:
        pool_instruments(exchange.pool).attempts.inc()

    def started(self, exchange: Exchange) -> None:
        run = exchange.runs[-1]
        if run.bypass:
            BYPASS_RUNS.inc()
            self._bypassed[run.worker, run.engine] = run.started_s

    def ended(self, exchange: Exchange) -> None:
        if exchange.runs[-1].stalled:
            STALLED_RUNS.inc()

    def settled(self, exchange: Exchange) -> None:
        instruments, outcome = pool_instruments(pool_label(self._directory, exchange.pool)), exchange.outcome
        if outcome is not None:
            instruments.outcomes[outcome].inc()
        if exchange.output_tokens:
            instruments.output_tokens.inc(exchange.output_tokens)
        if exchange.first_s is not None:
            instruments.ttft.observe(exchange.first_s - exchange.request.arrival_s)
        if outcome is Outcome.FINISHED and exchange.settled_s is not None:
            instruments.total.observe(exchange.settled_s - exchange.request.arrival_s)

    def connected(self, worker: str) -> None:
        self._bypassed = {engine: at_s for engine, at_s in self._bypassed.items() if engine[0] != worker}

    def _bypass_engines(self) -> int:
        now_s = self._clock()
        return sum(now_s - placed_s < BYPASS_SHOWN_S for placed_s in list(self._bypassed.values()))


_tenants: set[str] = set()
_keys: dict[tuple[str, str], "KeyInstruments"] = {}


class KeyInstruments:
    """The metrics of one API key with their labels resolved once."""

    def __init__(self, tenant: str, key: str) -> None:
        self.requests = {told: USAGE_REQUESTS.labels(tenant, key, told) for told in VERDICTS}
        self.prompt_tokens = USAGE_TOKENS.labels(tenant, key, "prompt")
        self.cached_tokens = USAGE_TOKENS.labels(tenant, key, "cached")
        self.output_tokens = USAGE_TOKENS.labels(tenant, key, "output")


def _key_instruments(tenant: str, key: str) -> KeyInstruments:
    found = _keys.get((tenant, key))
    if found is None:
        if len(_keys) >= MAX_KEYS:
            tenant = key = OTHER
        found = _keys.setdefault((tenant, key), KeyInstruments(tenant, key))
    return found


def count_settled(pool: str, settled: RequestSettled, verdict: str, used: Used) -> None:
    """Counts a request that ended. `told` is its verdict."""
    tenant = settled.tenant
    if tenant not in _tenants:
        if len(_tenants) < MAX_TENANTS:
            _tenants.add(tenant)
        else:
            tenant = OTHER
    SETTLED.labels(pool, tenant, settled.task.value, verdict).inc()
    if settled.relegated:
        RELEGATED.labels(pool).inc()
    if settled.tpot_s and settled.output_tokens > 1:  # 0 where the answer was not streamed
        TPOT.labels(pool).observe(settled.tpot_s)
    usage = _key_instruments(settled.tenant, used.key)
    usage.requests[verdict].inc()
    usage.prompt_tokens.inc(settled.prompt_tokens if used.ran else 0)
    usage.cached_tokens.inc(used.cached_tokens)
    usage.output_tokens.inc(settled.output_tokens)


def count_linked(linked: LinkedBy) -> None:
    """Counts a request that came, by how its job was found."""
    _job_calls[linked].inc()


def count_call(prompt_tokens: int, cached_tokens: int) -> None:
    """Counts the prompt of a job's call that has ended."""
    _job_prompt_tokens.inc(prompt_tokens)
    _job_cached_tokens.inc(cached_tokens)


def count_job(lasted_s: float, calls: int, failed: int, budget_s: float | None) -> None:
    """Counts a job that is over."""
    JOB_STAGES.observe(calls)
    if failed:
        JOBS.labels("failed").inc()
        return
    JOB_SECONDS.observe(lasted_s)
    JOBS.labels("ended" if budget_s is None else "on_time" if lasted_s <= budget_s else "late").inc()


VERDICTS = ("ok", "ttft_missed", "tpot_missed", "ttlt_missed", "failed", "unjudged")


def told_verdict(settled: RequestSettled) -> str:
    found = verdict(settled)
    if not found.judged:
        return "unjudged"
    if found.ok:
        return "ok"
    if settled.outcome not in (Outcome.FINISHED, Outcome.CANCELLED):
        return "failed"
    if settled.slo.whole or (found.ttft_ok and found.tpot_ok):
        return "ttlt_missed"
    return "tpot_missed" if found.ttft_ok else "ttft_missed"

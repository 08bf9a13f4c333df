"""The emulated engine's telemetry: metrics under vLLM's names, and a record of each finished request."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from hmas.engine.core import EngineCore
from hmas.engine.histogram import Histogram

RECORDS = 20_000

# The bucket bounds are those of vLLM.
_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_LATENCY = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_LAG = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A finished request as the engine saw it; times are seconds since its arrival at the engine.

    `tpot_s` is 0 for an answer of a single token.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    queue_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    preemptions: int


class EngineTelemetry(Collector):
    """The metrics of one engine: it counts events, and reads gauges from the core when Prometheus scrapes."""

    def __init__(self, core: EngineCore, model: str) -> None:
        self._core = core
        self._labels = {"model_name": model, "engine": "0"}
        self.records: deque[ServedRequest] = deque(maxlen=RECORDS)
        self._success = {"stop": 0, "length": 0, "abort": 0}
        self._refused = 0
        self._expired = 0
        self.sleep_level: int | None = None  # None: it is awake
        self.falling_asleep = 0  # calls of /sleep that are not answered yet
        self._histograms = {
            "vllm:time_to_first_token_seconds": ("Time to first token.", Histogram(_TTFT)),
            "vllm:inter_token_latency_seconds": ("Time between two tokens of a request.", Histogram(_ITL)),
            "vllm:request_time_per_output_token_seconds": ("Mean time per output token.", Histogram(_ITL)),
            "vllm:e2e_request_latency_seconds": ("Time from arrival to the last token.", Histogram(_LATENCY)),
            "vllm:request_queue_time_seconds": ("Time from arrival until first scheduled.", Histogram(_LATENCY)),
            "vllm:iteration_tokens_total": ("Tokens computed per engine step.", Histogram(_TOKENS)),
            "hmas_engine_step_lag_seconds": (
                "From a step's due end until its last token was written.",
                Histogram(_LAG),
            ),
        }
        by_name = {name: histogram for name, (_, histogram) in self._histograms.items()}
        self._ttft = by_name["vllm:time_to_first_token_seconds"]
        self._itl = by_name["vllm:inter_token_latency_seconds"]
        self._tpot = by_name["vllm:request_time_per_output_token_seconds"]
        self._e2e = by_name["vllm:e2e_request_latency_seconds"]
        self._queue = by_name["vllm:request_queue_time_seconds"]
        self._iteration = by_name["vllm:iteration_tokens_total"]
        self._lag = by_name["hmas_engine_step_lag_seconds"]

    def step(self, tokens: int) -> None:
        """Records the begin of a step that computes `tokens` tokens."""
        self._iteration.observe(tokens)

    def tokens(self, gap_s: float, count: int, lag_s: float) -> None:
        """Records the end of a step: `count` requests got a token `gap_s` after their previous one.

        `lag_s` is the time from the step's due end until its last token was written.
        """
        if count:
            self._itl.observe(gap_s, count)
        self._lag.observe(lag_s)

    def resumed(self, gap_s: float) -> None:
        """Records that a preempted request got a token again, `gap_s` after it was preempted."""
        self._itl.observe(gap_s)

    def refused(self) -> None:
        """Counts a request that the engine refused."""
        self._refused += 1

    def lease_expired(self) -> None:
        """Counts a request whose KV was kept for another engine until the lease was over."""
        self._expired += 1

    def aborted(self) -> None:
        self._success["abort"] += 1

    def finished(self, record: ServedRequest, reason: str) -> None:
        self.records.append(record)
        self._success[reason] += 1
        self._ttft.observe(record.ttft_s)
        self._tpot.observe(record.tpot_s)
        self._e2e.observe(record.e2e_s)
        self._queue.observe(record.queue_s)

    def collect(self) -> Iterable[Metric]:
        stats, limits = self._core.stats(), self._core.profile.limits
        yield self._gauge("vllm:num_requests_running", "Requests in the running batch.", stats.num_requests_running)
        yield self._gauge("vllm:num_requests_waiting", "Requests in the queue.", stats.num_requests_waiting)
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", stats.kv_cache_usage)
        yield self._counter("vllm:num_preemptions", "Preemptions.", stats.num_preemptions)
        yield self._counter("vllm:prompt_tokens", "Prompt tokens computed.", stats.prompt_tokens)
        yield self._counter("vllm:generation_tokens", "Tokens generated.", stats.generation_tokens)
        yield self._counter(
            "vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", stats.prefix_cache_queries
        )
        yield self._counter(
            "vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", stats.prefix_cache_hits
        )
        yield self._counter("vllm:admission_rejections", "Requests refused because the queue was full.", self._refused)
        yield self._counter("vllm:nixl_num_kv_expired_reqs", "Requests whose KV nobody read.", self._expired)
        success = CounterMetricFamily(
            "vllm:request_success", "Ended requests.", labels=[*self._labels, "finished_reason"]
        )
        for reason, count in self._success.items():
            success.add_metric([*self._labels.values(), reason], count)
        yield success
        info = {"block_size": limits.block_size, "num_gpu_blocks": limits.num_gpu_blocks}
        config = GaugeMetricFamily("vllm:cache_config_info", "KV cache layout.", labels=[*info, "engine"])
        config.add_metric([*map(str, info.values()), "0"], 1)
        yield config
        yield from self._sleep()
        for name, (text, histogram) in self._histograms.items():
            family = HistogramMetricFamily(name, text, labels=list(self._labels))
            family.add_metric(list(self._labels.values()), histogram.cumulative(), histogram.sum)
            yield family

    def _sleep(self) -> Iterable[Metric]:
        text = "1 for the state that the engine is in; none at sleep level 0."
        state = GaugeMetricFamily("vllm:engine_sleep_state", text, labels=[*self._labels, "sleep_state"])
        for name, level in (("awake", None), ("weights_offloaded", 1), ("discard_all", 2)):
            state.add_metric([*self._labels.values(), name], float(self.sleep_level == level))
        yield state
        text = "Sleep-mode operations currently awaited."
        operations = GaugeMetricFamily("vllm:sleep_mode_operations_in_flight", text, labels=["operation"])
        operations.add_metric(["sleep"], self.falling_asleep)
        yield operations

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

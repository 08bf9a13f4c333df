"""Reads the few figures that the worker needs from an engine's Prometheus page, without parsing the rest of it."""

import re
from dataclasses import dataclass

from hmas.laws.figures import sane, sane_int

MAX_SAMPLES = 4096  # of one metric that are read
MAX_LINES = 16_384  # of a page that are read: those of the engine's own metrics
_MAX_LABEL_BYTES = 8192  # of a sample that are read: matching takes time with the square of this
_MAX_VALUE_BYTES = 64
_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Metrics:
    """What was read of a page: samples (raw labels, value) by metric, and the dialects that it names."""

    samples: dict[str, list[tuple[bytes, float]]]
    dialects: frozenset[str]

    def of(self, name: str) -> list[tuple[bytes, float]]:
        return self.samples.get(name, [])


def read_page(page: bytes) -> Metrics:
    """Reads the metrics of `WANTED` in one pass: of each the first `MAX_SAMPLES` samples, and of the page the first
    `MAX_LINES` lines that begin like them. Lines that are cut short are left out."""
    samples: dict[str, list[tuple[bytes, float]]] = {}
    page, left = b"\n" + page, MAX_LINES
    for prefix in _PREFIXES:
        at = page.find(prefix)
        while at >= 0 and left:
            left -= 1
            end = page.find(b"\n", at + 1)
            line = page[at + 1 : end if end >= 0 else len(page)]
            name, brace, rest = line.partition(b"{")
            if not brace:
                name, _, rest = line.partition(b" ")
            wanted = WANTED.get(name)
            if wanted is not None and len(found := samples.setdefault(wanted, [])) < MAX_SAMPLES:
                labels, _, value = rest.rpartition(b"} ") if brace else (b"", b"", rest)
                try:
                    found.append((labels, float(value[:_MAX_VALUE_BYTES].split(maxsplit=1)[0])))
                except (ValueError, IndexError):
                    pass  # a line cut short
            at = page.find(prefix, end) if end >= 0 else -1
    return Metrics(samples, frozenset(each.name for each in DIALECTS if f"# TYPE {each.name}:".encode() in page))


def total(metrics: Metrics, name: str) -> float | None:
    """Returns the sum of a metric over its label sets (data-parallel ranks, models); None if it is absent."""
    values = [value for _, value in metrics.of(name)]
    return sum(values) if values else None


def whole(metrics: Metrics, name: str) -> float | None:
    """Returns the sum of a metric over its label sets, without counting a request twice; None if it is absent.

    When SGLang schedules by priority, it reports some metrics twice: all requests under an empty priority label, and
    again under each priority.
    """
    found = metrics.of(name)
    values = [value for labels, value in found if b'priority=""' in labels] or [value for _, value in found]
    return sum(values) if values else None


def mean(metrics: Metrics, name: str) -> float | None:
    values = [value for _, value in metrics.of(name)]
    return sum(values) / len(values) if values else None


def labels_of(metrics: Metrics, name: str) -> dict[str, str]:
    """Returns the labels of a metric's first sample; empty if the metric is absent."""
    labels = metrics.of(name)[0][0] if metrics.of(name) else b""
    return {k.decode(): v.decode("utf-8", "replace") for k, v in _LABEL.findall(labels[:_MAX_LABEL_BYTES])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The names of the metrics of one kind of engine, as they stand on its page (counters end in `_total`)."""

    name: str
    running: str
    waiting: str
    kv_usage: str
    preemptions: str
    prompt_tokens: str
    generation_tokens: str
    inter_token: str  # histogram, seconds
    parked: tuple[str, ...] = ()  # further numbers of requests that wait, for another engine


VLLM = Dialect(
    name="vllm",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
    preemptions="vllm:num_preemptions_total",
    prompt_tokens="vllm:prompt_tokens_total",
    generation_tokens="vllm:generation_tokens_total",
    inter_token="vllm:inter_token_latency_seconds",
)
SGLANG = Dialect(
    name="sglang",
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    kv_usage="sglang:token_usage",
    preemptions="sglang:num_retracted_requests_total",
    prompt_tokens="sglang:prompt_tokens_total",
    generation_tokens="sglang:generation_tokens_total",
    inter_token="sglang:inter_token_latency_seconds",
    parked=(
        "sglang:num_prefill_bootstrap_queue_reqs",
        "sglang:num_prefill_prealloc_queue_reqs",  # an older name
        "sglang:num_prefill_inflight_queue_reqs",
        "sglang:num_decode_prealloc_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs",
    ),
)
DIALECTS = (VLLM, SGLANG)
CACHE_CONFIG, EMULATED = "vllm:cache_config_info", "hmas_engine_step_lag_seconds_count"
# Of vLLM; SGLang tells nothing of a sleep. The second one counts calls of /sleep that are not answered yet (from 0.32).
SLEEP_STATE, SLEEP_CALLS = "vllm:engine_sleep_state", "vllm:sleep_mode_operations_in_flight"
_STATE, _OPERATION = re.compile(rb'sleep_state="([^"]*)"'), b'operation="sleep"'
_PREFIXES = (b"\nvllm:", b"\nsglang:", b"\nhmas_engine_")
WANTED = {
    name.encode(): name
    for dialect in DIALECTS
    for name in (
        dialect.running, dialect.waiting, dialect.kv_usage, dialect.preemptions, dialect.prompt_tokens,
        dialect.generation_tokens, *dialect.parked, f"{dialect.inter_token}_sum", f"{dialect.inter_token}_count",
    )
} | {name.encode(): name for name in (CACHE_CONFIG, EMULATED, SLEEP_STATE, SLEEP_CALLS)}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One scrape of an engine's load; None: the engine does not report the figure, or one that is not believed.

    `kv_usage` is a share from 0 to 1; `preemptions` and the tokens are totals since the engine started; `gap_sum_s` and
    `gap_count` are sum and count of the times between two tokens of a request. `sleep_level`: that of an engine that is
    asleep, or is falling asleep; None for one that is awake.
    """

    running: int
    waiting: int
    kv_usage: float
    preemptions: int
    prompt_tokens: float | None
    generation_tokens: float | None
    gap_sum_s: float | None
    gap_count: float | None
    sleep_level: int | None = None


def dialect_of(metrics: Metrics) -> Dialect | None:
    """Returns the dialect of a metrics page; None if it is of no known engine.

    The type lines are looked at too, because SGLang does not report running requests before there were any.
    """
    for dialect in DIALECTS:
        if total(metrics, dialect.running) is not None or dialect.name in metrics.dialects:
            return dialect
    return None


def read(metrics: Metrics, dialect: Dialect) -> Reading | None:
    """Returns the figures of a metrics page; None if it lacks the number of running requests, or one to be believed."""
    running = sane_int(whole(metrics, dialect.running))
    if running is None:
        return None
    return Reading(
        running=running,
        waiting=sum(sane_int(whole(metrics, name)) or 0 for name in (dialect.waiting, *dialect.parked)),
        kv_usage=min(1.0, sane(mean(metrics, dialect.kv_usage)) or 0.0),
        preemptions=sane_int(total(metrics, dialect.preemptions)) or 0,
        prompt_tokens=sane(total(metrics, dialect.prompt_tokens)),
        generation_tokens=sane(total(metrics, dialect.generation_tokens)),
        gap_sum_s=sane(total(metrics, f"{dialect.inter_token}_sum")),
        gap_count=sane(total(metrics, f"{dialect.inter_token}_count")),
        sleep_level=sleep_level(metrics),
    )


def sleep_level(metrics: Metrics) -> int | None:
    """Returns at which level of vLLM's an engine is asleep: 1 and 2 drop what its KV cache holds, 0 keeps it; None if
    it is awake, or does not tell.

    Of several label sets (data-parallel ranks) the deepest counts. One that is falling asleep takes no request any
    more, although what runs there may still end; it counts as asleep at level 0 until it says otherwise.
    """
    states: dict[bytes, list[float]] = {}
    for labels, value in metrics.of(SLEEP_STATE):
        named = _STATE.search(labels[:_MAX_LABEL_BYTES])
        if named is not None:
            states.setdefault(named[1], []).append(value)
    if 0.0 in states.get(b"awake", ()):
        deeper = ((2, b"discard_all"), (1, b"weights_offloaded"))
        return next((level for level, state in deeper if 1.0 in states.get(state, ())), 0)
    falling = any(_OPERATION in labels and value > 0.0 for labels, value in metrics.of(SLEEP_CALLS))
    return 0 if falling else None


def rate_per_s(before: float | None, after: float | None, elapsed_s: float) -> float:
    """Returns the growth of a counter per second; 0 if a value is unknown or a restart reset the counter."""
    if before is None or after is None or elapsed_s <= 0.0 or after < before:
        return 0.0
    return (after - before) / elapsed_s


def mean_gap_s(before: Reading, after: Reading) -> float | None:
    """Returns the mean inter-token latency between two scrapes, in seconds, which is the mean engine step of decoding
    requests; None if it is unknown or no token came."""
    if None in (before.gap_sum_s, before.gap_count, after.gap_sum_s, after.gap_count):
        return None
    count = after.gap_count - before.gap_count  # type: ignore[operator]
    total_s = after.gap_sum_s - before.gap_sum_s  # type: ignore[operator]
    return total_s / count if count > 0 and total_s >= 0.0 else None

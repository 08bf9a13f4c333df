"""Reads the few figures that the worker needs from an engine's Prometheus page, without parsing the rest of it."""

import re
from dataclasses import dataclass

from hmas.laws.figures import sane, sane_int

MAX_SAMPLES = 4096  # of one metric that are read
_MAX_LABEL_BYTES = 8192  # of a sample that are read: matching takes time with the square of this
_MAX_VALUE_BYTES = 64
_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def samples(page: bytes, name: str) -> list[tuple[bytes, float]]:
    """Returns (raw labels, value) of the first `MAX_SAMPLES` samples of the metric `name`; lines that are cut short are
    left out."""
    found: list[tuple[bytes, float]] = []
    key = name.encode()
    at = page.find(key)
    while at >= 0 and len(found) < MAX_SAMPLES:
        end = page.find(b"\n", at)
        line = page[at : end if end >= 0 else len(page)]
        rest = line[len(key) :]
        if (at == 0 or page[at - 1] == 0x0A) and rest[:1] in (b"{", b" "):
            labels, _, value = rest.rpartition(b"} ") if rest.startswith(b"{") else (b"", b"", rest[1:])
            try:
                found.append((labels, float(value[:_MAX_VALUE_BYTES].split(maxsplit=1)[0])))
            except (ValueError, IndexError):
                pass  # a line cut short
        at = page.find(key, at + len(line))
    return found


def total(page: bytes, name: str) -> float | None:
    """Returns the sum of a metric over its label sets (data-parallel ranks, models); None if it is absent."""
    values = [value for _, value in samples(page, name)]
    return sum(values) if values else None


def whole(page: bytes, name: str) -> float | None:
    """Returns the sum of a metric over its label sets, without counting a request twice; None if it is absent.

    When SGLang schedules by priority, it reports some metrics twice: all requests under an empty priority label, and
    again under each priority.
    """
    found = samples(page, name)
    values = [value for labels, value in found if b'priority=""' in labels] or [value for _, value in found]
    return sum(values) if values else None


def mean(page: bytes, name: str) -> float | None:
    values = [value for _, value in samples(page, name)]
    return sum(values) / len(values) if values else None


def labels_of(page: bytes, name: str) -> dict[str, str]:
    """Returns the labels of a metric's first sample; empty if the metric is absent."""
    found = samples(page, name)
    return (
        {k.decode(): v.decode("utf-8", "replace") for k, v in _LABEL.findall(found[0][0][:_MAX_LABEL_BYTES])}
        if found
        else {}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The names of the metrics of one kind of engine, as they stand on its page (counters end in `_total`)."""

    kind: str
    running: str
    waiting: str
    kv_usage: str
    preemptions: str
    prompt_tokens: str
    generation_tokens: str
    inter_token: str  # histogram, seconds


VLLM = Dialect(
    kind="vllm",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
    preemptions="vllm:num_preemptions_total",
    prompt_tokens="vllm:prompt_tokens_total",
    generation_tokens="vllm:generation_tokens_total",
    inter_token="vllm:inter_token_latency_seconds",
)
SGLANG = Dialect(
    kind="sglang",
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    kv_usage="sglang:token_usage",
    preemptions="sglang:num_retracted_requests_total",
    prompt_tokens="sglang:prompt_tokens_total",
    generation_tokens="sglang:generation_tokens_total",
    inter_token="sglang:inter_token_latency_seconds",
)
DIALECTS = (VLLM, SGLANG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One scrape of an engine's load; None: the engine does not report the figure, or one that is not believed.

    `kv_usage` is a share from 0 to 1; `preemptions` and the tokens are totals since the engine started; `gap_sum_s` and
    `gap_count` are sum and count of the times between two tokens of a request.
    """

    running: int
    waiting: int
    kv_usage: float
    preemptions: int
    prompt_tokens: float | None
    generation_tokens: float | None
    gap_sum_s: float | None
    gap_count: float | None


def dialect_of(page: bytes) -> Dialect | None:
    """Returns the dialect of a metrics page; None if it is of no known engine.

    The type lines are looked at too, because SGLang does not report running requests before there were any.
    """
    for dialect in DIALECTS:
        if total(page, dialect.running) is not None or f"# TYPE {dialect.kind}:".encode() in page:
            return dialect
    return None


def read(page: bytes, dialect: Dialect) -> Reading | None:
    """Returns the figures of a metrics page; None if it lacks the number of running requests, or one to be believed."""
    running = sane_int(whole(page, dialect.running))
    if running is None:
        return None
    return Reading(
        running=running,
        waiting=sane_int(whole(page, dialect.waiting)) or 0,
        kv_usage=min(1.0, sane(mean(page, dialect.kv_usage)) or 0.0),
        preemptions=sane_int(total(page, dialect.preemptions)) or 0,
        prompt_tokens=sane(total(page, dialect.prompt_tokens)),
        generation_tokens=sane(total(page, dialect.generation_tokens)),
        gap_sum_s=sane(total(page, f"{dialect.inter_token}_sum")),
        gap_count=sane(total(page, f"{dialect.inter_token}_count")),
    )


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

"""Engines' Prometheus pages: the few figures that matter, found without parsing the other hundred kilobytes."""

import re
from dataclasses import dataclass

_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def samples(page: bytes, name: str) -> list[tuple[bytes, float]]:
    """Labels (raw) and value of each sample of a metric, over all its label sets."""
    found: list[tuple[bytes, float]] = []
    key = name.encode()
    at = page.find(key)
    while at >= 0:
        end = page.find(b"\n", at)
        line = page[at : end if end >= 0 else len(page)]
        rest = line[len(key) :]
        if (at == 0 or page[at - 1] == 0x0A) and rest[:1] in (b"{", b" "):
            labels, _, value = rest.rpartition(b"} ") if rest.startswith(b"{") else (b"", b"", rest[1:])
            try:
                found.append((labels, float(value.split(maxsplit=1)[0])))
            except (ValueError, IndexError):
                pass  # a line cut short
        at = page.find(key, at + len(line))
    return found


def total(page: bytes, name: str) -> float | None:
    """Sum over the label sets (data-parallel ranks, models); None if the metric is absent."""
    values = [value for _, value in samples(page, name)]
    return sum(values) if values else None


def whole(page: bytes, name: str) -> float | None:
    """`total` of a metric that SGLang tells twice when it schedules by priority: all under an empty label, and again
    under each priority."""
    found = samples(page, name)
    values = [value for labels, value in found if b'priority=""' in labels] or [value for _, value in found]
    return sum(values) if values else None


def mean(page: bytes, name: str) -> float | None:
    values = [value for _, value in samples(page, name)]
    return sum(values) / len(values) if values else None


def labels_of(page: bytes, name: str) -> dict[str, str]:
    """Labels of the first sample of a metric; empty if it is absent."""
    found = samples(page, name)
    return {k.decode(): v.decode() for k, v in _LABEL.findall(found[0][0])} if found else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Names of one engine family's metrics. Counters scrape with `_total`."""

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
    """One scrape; None where the engine does not tell."""

    running: int
    waiting: int
    kv_usage: float
    preemptions: int
    prompt_tokens: float | None
    generation_tokens: float | None
    gap_sum_s: float | None
    gap_count: float | None


def dialect_of(page: bytes) -> Dialect | None:
    """Whose metrics these are; None if of no known engine. SGLang does not tell what runs before something did."""
    for dialect in DIALECTS:
        if total(page, dialect.running) is not None or f"# TYPE {dialect.kind}:".encode() in page:
            return dialect
    return None


def read(page: bytes, dialect: Dialect) -> Reading | None:
    """The figures of a page; None if it has not even the running requests."""
    running = whole(page, dialect.running)
    if running is None:
        return None
    return Reading(
        running=int(running),
        waiting=int(whole(page, dialect.waiting) or 0),
        kv_usage=min(1.0, max(0.0, mean(page, dialect.kv_usage) or 0.0)),
        preemptions=int(total(page, dialect.preemptions) or 0),
        prompt_tokens=total(page, dialect.prompt_tokens),
        generation_tokens=total(page, dialect.generation_tokens),
        gap_sum_s=total(page, f"{dialect.inter_token}_sum"),
        gap_count=total(page, f"{dialect.inter_token}_count"),
    )


def rate_per_s(before: float | None, after: float | None, elapsed_s: float) -> float:
    """Growth of a counter; 0 where it is unknown or was reset by a restart."""
    if before is None or after is None or elapsed_s <= 0.0 or after < before:
        return 0.0
    return (after - before) / elapsed_s


def mean_gap_s(before: Reading, after: Reading) -> float | None:
    """Mean inter-token latency between two scrapes, which is the mean engine step of decoding requests."""
    if None in (before.gap_sum_s, before.gap_count, after.gap_sum_s, after.gap_count):
        return None
    count = after.gap_count - before.gap_count  # type: ignore[operator]
    total_s = after.gap_sum_s - before.gap_sum_s  # type: ignore[operator]
    return total_s / count if count > 0 and total_s >= 0.0 else None

"""Computes the measurement of a plan's point from the times at which tokens arrived."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hmas.engine.fitting import Observation
from hmas.mesh.calibrate.points import PlanPoint

MIN_STEPS = 8  # in the window where the whole batch decodes: fewer make an unreliable mean


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """When one request was sent and when each of its token events came, in s; the endpoint counted the tokens."""

    sent_s: float
    token_s: tuple[float, ...]
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurement of one point of the plan.

    `seconds` is the TTFT (prefill points) or the mean step while the whole batch decoded; None if it never decoded all
    at once, because the engine runs fewer together. `context_tokens` is summed over the batch at the middle of that
    window. `kv_usage` (share), `running` and `waiting` are the highest values in the engine's metrics during the point,
    `held_tokens` the tokens in the KV cache at its end.
    """

    id: str
    kind: str
    batch: int
    prompt_tokens: float
    seconds: float | None
    context_tokens: float = 0.0
    kv_usage: float = 0.0
    running: int = 0
    waiting: int = 0
    held_tokens: int = 0

    def row(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EngineGauges:
    """The highest values in the engine's metrics during a point; `kv_usage` is a share."""

    kv_usage: float = 0.0
    running: int = 0
    waiting: int = 0


def measured(point: PlanPoint, streams: Sequence[StreamTimes], gauges: EngineGauges) -> Measurement:
    prompt = sum(s.prompt_tokens for s in streams) / len(streams)
    held = sum(s.prompt_tokens + s.output_tokens for s in streams)
    seconds, context = (
        (streams[0].token_s[0] - streams[0].sent_s, 0.0) if point.kind == "prefill" else _decode_step(streams)
    )
    return Measurement(
        point.id, point.kind, point.batch, prompt, seconds, context,
        gauges.kv_usage, gauges.running, gauges.waiting, held,
    )  # fmt: skip


def _decode_step(streams: Sequence[StreamTimes]) -> tuple[float | None, float]:
    """Returns the mean step (s) and the summed context (tokens) while all streams decode.

    That window lasts from the latest first token to the earliest last token; the step is None if it is too short.
    """
    begin_s = max(s.token_s[0] for s in streams)
    end_s = min(s.token_s[-1] for s in streams)
    steps, context = 0.0, 0.0
    for stream in streams:
        # An event may hold several tokens: the engine's token count gives their mean number per event.
        per_event = stream.output_tokens / len(stream.token_s)
        before = sum(t <= begin_s for t in stream.token_s) * per_event
        within = sum(begin_s < t <= end_s for t in stream.token_s) * per_event
        steps += within / len(streams)
        context += stream.prompt_tokens + before + within / 2
    if end_s <= begin_s or steps < MIN_STEPS:
        return None, context
    return (end_s - begin_s) / steps, context


def observations(
    measurements: Sequence[Measurement], overhead_s: float, max_num_batched_tokens: int
) -> list[Observation]:
    """Converts measurements into observations for the fit of the cost model.

    `overhead_s` is a request's time outside the engine's steps; it is subtracted from each TTFT.
    """
    result = []
    for tokens, ttft_s in _telling(ttft_by_length(measurements), overhead_s):
        steps = -(-tokens // max_num_batched_tokens)
        seconds = max(ttft_s - overhead_s, 0.05 * ttft_s)
        result.append(Observation("prefill", seconds, steps, tokens, prefill_pairs=tokens**2 / 2))
    result.extend(
        Observation("decode", m.seconds, decode_seqs=m.batch, context_tokens=m.context_tokens)
        for m in measurements
        if m.kind == "decode" and m.seconds is not None
    )
    return result


def ttft_by_length(measurements: Sequence[Measurement]) -> list[tuple[float, float]]:
    """Returns (prompt tokens, median TTFT of the repeats in s) of the prefill points, ascending."""
    found: dict[float, list[float]] = {}
    for m in measurements:
        if m.kind == "prefill" and m.seconds:
            found.setdefault(m.prompt_tokens, []).append(m.seconds)
    return [(length, float(np.median(found[length]))) for length in sorted(found)]


def _telling(prefills: list[tuple[float, float]], overhead_s: float) -> list[tuple[float, float]]:
    """Drops prefills that are mostly overhead: their remainder is noise, which a fit of relative errors would follow.

    At least the three longest stay.
    """
    kept = [(tokens, ttft_s) for tokens, ttft_s in prefills if ttft_s >= 2 * overhead_s]
    return kept if len(kept) >= 3 else prefills[-3:]


def overhead_s(measurements: Sequence[Measurement]) -> float:
    """Estimates the time (s) that a request spends outside the engine's steps (HTTP, tokenizer, queue).

    It is the limit of TTFT for short prompts, less a step of one decoding request, which takes the engine about as long
    as a step that begins a short prompt. It is 0 if there are too few measurements.
    """
    steps = [m.seconds for m in measurements if m.kind == "decode" and m.batch == 1 and m.seconds]
    prefills = ttft_by_length(measurements)
    if len(prefills) < 3 or not steps:
        return 0.0
    lengths, seconds = (np.array(column) for column in zip(*prefills, strict=True))
    design = np.stack([np.ones_like(lengths), lengths, lengths**2 / 2], axis=1) / seconds[:, None]
    for columns in (3, 2):  # without the quadratic term if its coefficient would be negative
        solution = np.linalg.lstsq(design[:, :columns], np.ones_like(seconds), rcond=None)[0]
        if solution[-1] >= 0:
            break
    return max(0.0, float(solution[0]) - min(steps))

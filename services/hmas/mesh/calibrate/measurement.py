"""What was measured at a point, out of the times at which tokens came."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hmas.engine.fitting import Observation
from hmas.mesh.calibrate.plan import PlanPoint

MIN_STEPS = 8  # in a window where all of a batch decode, for a mean worth having


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """One request: when it was sent, when each token event came, and the endpoint's own counts."""

    sent_s: float
    token_s: tuple[float, ...]
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One point. `seconds`: TTFT, or the mean step while the whole batch decoded; None where it never did at once
    (more than the engine runs together). `context_tokens`: summed over the batch, at the window's middle. `kv_usage`,
    `running`: the most that the engine's metrics showed meanwhile, `held_tokens` what was in the cache at the end.
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
    """The most that the metrics page showed during a point."""

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
    """Mean step and summed context in the window from the last first token to the first last token."""
    begin_s = max(s.token_s[0] for s in streams)
    end_s = min(s.token_s[-1] for s in streams)
    steps, context = 0.0, 0.0
    for stream in streams:
        # Several tokens may share an event: the engine's own count tells how many an event holds on average.
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
    """In the cost model's terms; `overhead_s` is what a request costs outside the engine's steps."""
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
    """Prompt tokens and the median TTFT of the repeats, ascending."""
    found: dict[float, list[float]] = {}
    for m in measurements:
        if m.kind == "prefill" and m.seconds:
            found.setdefault(m.prompt_tokens, []).append(m.seconds)
    return [(length, float(np.median(found[length]))) for length in sorted(found)]


def _telling(prefills: list[tuple[float, float]], overhead_s: float) -> list[tuple[float, float]]:
    """Without those that are mostly overhead: what is left of them is noise, which a relative fit would follow."""
    kept = [(tokens, ttft_s) for tokens, ttft_s in prefills if ttft_s >= 2 * overhead_s]
    return kept if len(kept) >= 3 else prefills[-3:]


def overhead_s(measurements: Sequence[Measurement]) -> float:
    """Time a request spends outside the engine's steps (HTTP, tokenizer, queue): what TTFT tends to as prompts become
    short, less a step of one decode, which costs the engine about as much as a step that begins a short prompt."""
    steps = [m.seconds for m in measurements if m.kind == "decode" and m.batch == 1 and m.seconds]
    prefills = ttft_by_length(measurements)
    if len(prefills) < 3 or not steps:
        return 0.0
    lengths, seconds = (np.array(column) for column in zip(*prefills, strict=True))
    design = np.stack([np.ones_like(lengths), lengths, lengths**2 / 2], axis=1) / seconds[:, None]
    for columns in (3, 2):  # without the square where it would be negative
        solution = np.linalg.lstsq(design[:, :columns], np.ones_like(seconds), rcond=None)[0]
        if solution[-1] >= 0:
            break
    return max(0.0, float(solution[0]) - min(steps))

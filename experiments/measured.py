"""Readers of published serving measurements: files to observations of the cost model."""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf
from pathlib import Path
from typing import Literal

from hmas.engine.fitting import Observation


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a gzipped CSV file with a header. OSError if it is not there."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def splitwise(directory: Path, model: str, hardware: str, tensor_parallel: int) -> list[Observation]:
    """Static batches: one prefill of the whole batch in one pass, then decode of the batch in step."""
    result = []
    for row in rows_of(directory / "splitwise_perf_model.csv.gz"):
        if (row["model"], row["hardware"], row["tensor_parallel"]) != (model, hardware, str(tensor_parallel)):
            continue
        prompt, batch, tokens = int(row["prompt_size"]), int(row["batch_size"]), int(row["token_size"])
        prefill = Observation(
            "prefill",
            float(row["prompt_time_ms"]) / 1000,
            prefill_tokens=prompt * batch,
            prefill_pairs=batch * prompt**2 / 2,
        )
        decode = Observation(
            "decode",
            float(row["token_time_ms"]) / 1000,
            decode_seqs=batch,
            context_tokens=batch * (prompt + tokens / 2),
        )
        result += [prefill, decode]
    return result


def aiconfigurator(
    directory: Path, model: str, system: str, backend: str, precision: str, tp: int, kv_tokens: int, quadratic: bool
) -> list[Observation]:
    """Closed loops of constant concurrency: TPOT alone.

    While a request decodes `osl` tokens, each of the others is replaced once, so its prefill lies between those
    tokens: that is how TPOT also tells the cost of prefill. Mean TTFT depends on how the loop was started and is not
    used, nor are loops whose sequences do not fit the KV memory together. Without `quadratic` the attention term of
    prefill is left out: two prompt lengths do not tell it from the linear one.
    """
    result = []
    for row in rows_of(directory / "aiconfigurator_silicon.csv.gz"):
        key = (row["model_path"], row["system"], row["backend"], row["precision"], row["mode"])
        if key != (model, system, backend, precision, "agg") or float(row["tp_size"] or 0) != tp:
            continue
        if not row["silicon_concurrency"] or not row["silicon_tpot_ms"]:
            continue
        isl, osl, users = int(row["isl"]), int(row["osl"]), float(row["silicon_concurrency"])
        if users * (isl + osl) > kv_tokens:
            continue
        between = (users - 1) / osl
        result.append(
            Observation(
                "decode",
                float(row["silicon_tpot_ms"]) / 1000,
                prefill_tokens=between * isl,
                decode_seqs=users,
                context_tokens=users * (isl + osl / 2),
                prefill_pairs=between * isl**2 / 2 if quadratic else 0.0,
            )
        )
    return result


def llm_pilot(directory: Path, model: str, gpu: str, count: int) -> list[Observation]:
    """Closed loops of `num_users`: median gaps of the loops that lost no request, and the TTFT of a lone user.

    Their contexts are short and much alike, so the cost per sequence stands for that per token of context too.
    """
    result = []
    for row in rows_of(directory / "llm_pilot_config_summary.csv.gz"):
        if (row["model"], row["gpu_type"], row["n_gpus"]) != (model, gpu, str(count)):
            continue
        if row["n_ok"] != row["n_requests"]:
            continue
        result.append(Observation("decode", float(row["itl_p50_ms"]) / 1000, decode_seqs=int(row["num_users"])))
    for row in rows_of(directory / "llm_pilot_requests.csv.gz"):
        if (row["model"], row["gpu_type"], row["n_gpus"], row["num_users"]) != (model, gpu, str(count), "1"):
            continue
        tokens = int(row["input_tokens"])
        result.append(
            Observation("prefill", float(row["ttft_ms"]) / 1000, prefill_tokens=tokens, prefill_pairs=tokens**2 / 2)
        )
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """One request of a recorded run: prefill from `start_s` to `first_s`, decode from there to `end_s`."""

    prompt: int
    output: int
    start_s: float
    first_s: float
    end_s: float


def vllm_requests(directory: Path, model: str, gpu: str) -> list[Observation]:
    """Requests of an open-loop run on vLLM: mean gap, and what else the engine did during that request's decode.

    A recorded prefill lasts until its own first token, so its share inside another request's decode tells the
    prompt tokens that were computed between that request's tokens.
    """
    spans = []
    for row in rows_of(directory / "vllm_measured_requests.csv.gz"):
        if (row["model"], row["gpu"]) != (model, gpu):
            continue
        start_s = float(row["arrival_s"]) + float(row["queue_s"])
        first_s = start_s + float(row["prefill_s"])
        end_s = first_s + float(row["decode_s"])
        spans.append(
            _Span(
                prompt=int(row["input_tokens"]),
                output=int(row["output_tokens"]),
                start_s=start_s,
                first_s=first_s,
                end_s=end_s,
            )
        )
    return [_during(span, spans) for span in spans if span.output >= 20]


def _during(span: _Span, spans: list[_Span]) -> Observation:
    """The mean step of one request's decode."""
    length_s, steps = span.end_s - span.first_s, span.output - 1
    seqs = context = prefill = 0.0
    for other in spans:
        begin_s, until_s = max(other.first_s, span.first_s), min(other.end_s, span.end_s)
        if until_s > begin_s:
            share = (until_s - begin_s) / length_s
            done = ((begin_s + until_s) / 2 - other.first_s) / (other.end_s - other.first_s)
            seqs += share
            context += share * (other.prompt + done * other.output)
        overlap_s = min(other.first_s, span.end_s) - max(other.start_s, span.first_s)
        if overlap_s > 0:
            prefill += overlap_s / (other.first_s - other.start_s) * other.prompt
    return Observation(
        "decode", length_s / steps, prefill_tokens=prefill / steps, decode_seqs=seqs, context_tokens=context
    )


# Seconds of a step by the regressions in microsoft/sarathi-serve, branch niyama_asplos2026, `deadline_scheduler.py`,
# trained on steps of Llama-3-8B on one A100: most tokens -> (intercept, per prefill token, per decode, per token of
# decode context, per token of context before the chunk).
SARATHI_STEPS: dict[float, tuple[float, float, float, float, float]] = {
    512: (0.014936, 5.882475e-05 + 2.247956e-05, 5.882475e-05 + 3.634519e-05, 1.111258e-07, 7.554773e-07),
    inf: (0.005004, 2.719050e-05 + 6.863043e-05, 2.719050e-05 - 4.143993e-05, 1.663409e-07, 2.727223e-06),
}


def sarathi_steps() -> list[Observation]:
    """Steps that those regressions were made for: chunks as a scheduler chooses them, beside up to 64 decodes."""
    result = []
    for chunk, decodes, context in product(
        (0, 64, 128, 256, 384, 500, 640, 768, 1024, 1536, 2048, 2432), (0, 5, 10, 20, 40, 64), (0, 1000, 2500, 5000)
    ):
        if chunk + decodes == 0 or (chunk == 0 and context == 0):
            continue
        model = next(model for most, model in SARATHI_STEPS.items() if chunk + decodes <= most)
        held, before = decodes * max(context, 500), context if chunk else 0
        seconds = sum(c * x for c, x in zip(model, (1, chunk, decodes, held, before), strict=True))
        kind: Literal["prefill", "decode"] = "prefill" if chunk else "decode"
        result.append(Observation(kind, seconds, 1, chunk, decodes, held, chunk * (before + chunk / 2)))
    return result

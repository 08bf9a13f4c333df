"""Reads published serving measurements and turns them into observations, to which an engine's cost model is fitted."""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf
from pathlib import Path
from typing import Literal

from hmas.engine.fitting import Observation
from hmas.mesh.profiling.silicon import SiliconKey, closed_loops


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """Yields the rows of a gzipped CSV file with a header. Raises OSError if the file is missing."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def splitwise(directory: Path, model: str, hardware: str, tensor_parallel: int) -> list[Observation]:
    """Reads the Splitwise performance model for one model and hardware. Its batches are static: one prefill of the
    whole batch in one step, then all sequences decode together."""
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
    """Reads the TPOT of aiconfigurator's measurements on `tp` cards. Loops whose sequences together exceed `kv_tokens`
    of KV memory are left out. Without `quadratic` the attention term of prefill is left out, because two prompt lengths
    cannot tell it from the linear one.
    """
    key = SiliconKey(model, system, backend, precision)
    loops = closed_loops(directory, [key])[key]
    return [
        loop.observation(quadratic=quadratic) for loop in loops if loop.gpus == tp and loop.held_tokens <= kv_tokens
    ]


def llm_pilot(directory: Path, model: str, gpu: str, count: int) -> list[Observation]:
    """Reads LLM-Pilot's measurements, closed loops of several users: the median gap between tokens from loops without a
    failed request, and the TTFT with a single user.

    The contexts are short and of similar length, so the fitted cost per sequence includes that per token of context.
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
    """One request of a recorded run, with lengths in tokens and instants in s: prefill from `start_s` to `first_s`,
    decode from there to `end_s`."""

    prompt: int
    output: int
    start_s: float
    first_s: float
    end_s: float


def vllm_requests(directory: Path, model: str, gpu: str) -> list[Observation]:
    """Reads an open-loop run on vLLM: one observation per request with at least 20 output tokens, of its mean gap
    between tokens and of what else the engine did in that time.

    A recorded prefill lasts until the request's first token. The share of it that overlaps another request's decode
    gives the number of prompt tokens that were computed between that request's tokens.
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
    """Returns the mean step during the decode of `span` as an observation; `spans` are all requests of the run."""
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
# trained on steps of Llama-3-8B on one A100. The key is the largest number of tokens in a step that the coefficients
# apply to; they are (intercept, per prefill token, per decode, per token of decode context, per token of context before
# the chunk).
SARATHI_STEPS: dict[float, tuple[float, float, float, float, float]] = {
    512: (0.014936, 5.882475e-05 + 2.247956e-05, 5.882475e-05 + 3.634519e-05, 1.111258e-07, 7.554773e-07),
    inf: (0.005004, 2.719050e-05 + 6.863043e-05, 2.719050e-05 - 4.143993e-05, 1.663409e-07, 2.727223e-06),
}


def sarathi_steps() -> list[Observation]:
    """Returns steps whose duration follows `SARATHI_STEPS`: chunks as a scheduler chooses them, with up to 64
    decodes."""
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

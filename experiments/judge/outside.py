"""AISimulate, as the second judge: it is asked in an environment of its own, which is no part of ours, through the
script `aisimulate_worker.py`, which reads configurations and writes what came of them as JSON."""

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.judge.judged_cells import OUTSIDE, TTFT_S
from hmas.sim.workload import OfferedRequest

BLOCK = 512  # prompt tokens of a block of the trace, by which prompts are told apart
TRIALS = 64  # of a search, more than there are shapes: it ends when all were tried
LIMITS = {"max_batched_tokens": 1024, "max_sequences": 256}  # of every engine, as in our catalogue
WORKER = Path(__file__).with_name("aisimulate_worker.py")
MISSING = (
    "this needs AISimulate in an environment of its own: `python3.11 -m venv AISIM` and `AISIM/bin/pip install "
    "--no-deps --only-binary :all: aisimulate && AISIM/bin/pip install numpy pandas pyarrow pydantic pyyaml ijson "
    "psutil scipy prettytable plotext jinja2 packaging munch tqdm`; then give --judge AISIM/bin/python"
)


@dataclass(frozen=True, slots=True)
class OutsideShape:
    """A deployment that AISimulate tried: its goodput, by which it is ranked, is output tokens per second of requests
    that keep the SLA, and `on_time_rps` counts these requests."""

    tensor: int
    replicas: int
    goodput: float
    on_time_rps: float

    @property
    def cards(self) -> int:
        return self.tensor * self.replicas


def trace_lines(requests: Iterable[OfferedRequest]) -> list[str]:
    """Returns requests as lines of a Mooncake trace. No prompt has a block in common with another."""
    lines, used = [], 0
    for place, each in enumerate(requests):
        blocks = -(-each.request.prompt_tokens // BLOCK)
        row = {
            "session_id": str(place), "timestamp": 1000.0 * each.request.arrival_s,
            "input_length": each.request.prompt_tokens, "output_length": each.output_tokens,
            "hash_ids": list(range(used, used + blocks)),
        }  # fmt: skip
        used += blocks
        lines.append(json.dumps(row))
    return lines


def configuration(trace: Path, parallelism: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what both commands are told: the trace, and engines with the limits of our catalogue."""
    return {
        "traffic": {
            "source": {"type": "trace", "paths": [str(trace)], "format": "mooncake", "block_size": BLOCK},
            "load": {"type": "trace_timestamps"},
        },
        "engine": {
            "mode": "aggregated", **OUTSIDE,
            "workers": {
                "aggregated": {
                    "parallelism": dict(parallelism), "scheduler": dict(LIMITS), "kv_cache": {"prefix_caching": False},
                }
            },
        },
    }  # fmt: skip


def asking(slo_s: float, least: int, most: int) -> dict[str, Any]:
    """Returns what its search is asked for: the most goodput under one SLA, on `least` to `most` cards."""
    return {
        "evaluation": {"sla": {"ttft_ms": 1000.0 * TTFT_S, "itl_ms": 1000.0 * slo_s}},
        "optimization": {
            "target": "goodput", "constraints": {"min_candidate_gpus": least, "max_candidate_gpus": most},
        },
        "optimizer": {"algorithm": "random", "max_trials": TRIALS, "parallelism": 1, "seed": 1},
    }  # fmt: skip


def predicted(
    python: Path | None, tensor: int, replicas: int, requests: Sequence[OfferedRequest]
) -> list[tuple[float, float] | None]:
    """Returns of each request the seconds to its first token and per further token on such a deployment, None for one
    that did not end. Raises ValueError if AISimulate is missing, RuntimeError if it fails."""
    with TemporaryDirectory() as folder:
        told = configuration(_traced(Path(folder), requests), {"replicas": replicas, "tensor": tensor})
        return times_of(_answered(python, "predict", told), len(requests))


def recommended(
    python: Path | None, slo_s: float, least: int, most: int, requests: Sequence[OfferedRequest]
) -> tuple[list[OutsideShape], str]:
    """Returns all shapes that its search tried, the recommended one first, and the version that was asked. Raises as
    `predicted` does."""
    with TemporaryDirectory() as folder:
        told = configuration(_traced(Path(folder), requests), {"preset": "default"}) | asking(slo_s, least, most)
        return shapes_of(_answered(python, "recommend", told)), str(_answered(python, "version", {}))


def _traced(folder: Path, requests: Sequence[OfferedRequest]) -> Path:
    trace = folder / "trace.jsonl"
    trace.write_text("".join(f"{line}\n" for line in trace_lines(requests)), encoding="utf-8")
    return trace


def _answered(python: Path | None, command: str, told: Mapping[str, Any]) -> Any:
    """Asks the worker in AISimulate's environment, which is started once."""
    if python is None or not python.exists():
        raise ValueError(MISSING)
    worker = _worker(python)
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps({"command": command, "configuration": told}) + "\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"{python} {WORKER.name} has ended with {worker.wait()}")
    answer = json.loads(line)
    if "error" in answer:
        raise RuntimeError(f"AISimulate's {command} failed: {answer['error']}")
    return answer["answer"]


@cache
def _worker(python: Path) -> "subprocess.Popen[str]":
    """Starts the worker, which ends when its input is closed."""
    words = [str(python), str(WORKER)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def times_of(rows: Iterable[Mapping[str, Any]], requests: int) -> list[tuple[float, float] | None]:
    """Returns the seconds to the first token and per further token of each request, by its place in the trace."""
    found: list[tuple[float, float] | None] = [None] * requests
    for row in rows:
        if row["terminal_status"] == "completed":
            found[int(row["session_id"])] = row["ttft_ms"] / 1000.0, (row["itl_ms"] or 0.0) / 1000.0
    return found


def shapes_of(document: Mapping[str, Any]) -> list[OutsideShape]:
    """Returns the shapes that a search tried and could run, the best first: those of its ranking, in its order."""
    known = {each["candidate_id"]: each for each in document["candidates"] if each["status"] == "feasible"}
    found = []
    for name in document["views"]["top_n"]:
        each = known[name]
        tensor, rps = each["config"]["tp"], each["metrics"].get("goodput_request_throughput_rps", 0.0)
        found.append(OutsideShape(tensor, each["used_gpus"] // tensor, each["score"], rps))
    return found

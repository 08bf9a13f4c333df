"""Measures the load generator at 100 requests/s with 64 streamed tokens each, against an emulated engine in its own
process: its lag, and how far its median TTFT and TPOT are from those that the engine recorded."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from urllib.request import urlopen

# The first profile takes 20 ms per step at any load, so that only the clocks are compared; the second is saturated.
PROFILES = ("steady", "qwen3-32b-h100x2")
RATE_RPS, SECONDS, WARMUP_S = 100.0, 20.0, 2.0
INPUT_TOKENS, OUTPUT_TOKENS = 64, 64
LAG_GOAL_MS = 10.0
SHARE, FLOOR_S = 0.02, 0.002  # medians agree within max(2 %, 2 ms)


def rows() -> list[dict[str, object]]:
    return [row for profile in PROFILES for row in _rows(profile)]


def _rows(profile: str) -> list[dict[str, object]]:
    with TemporaryDirectory() as name, _engine(profile) as url:
        folder = Path(name)
        _write_trace(folder / "poisson.csv")
        command = [
            sys.executable, "-m", "hmas_loadgen", "run", str(folder / "poisson.csv"), "--url", url, "--direct",
            "--warmup", f"{WARMUP_S}", "--out", str(folder / "run"),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "160"}, check=False)
        if not (folder / "run" / "summary.json").exists():
            raise RuntimeError(f"the load generator wrote no summary.json; its output was:\n{done.stdout}{done.stderr}")
        summary = json.loads((folder / "run" / "summary.json").read_text())
        with urlopen(f"{url}/hmas/requests") as answer:
            recorded = json.load(answer)["requests"][-summary["score"]["offered"] :]
    lag_ms, score = summary["lag_p50_ms"], summary["score"]
    met = summary["valid"] and lag_ms < LAG_GOAL_MS
    lag = {"name": f"load, {profile}: median lag at 100 req/s", "value": lag_ms, "unit": "ms", "met": met}
    agreements = [
        _agreement(f"load, {profile}: median {m.upper()}", score[f"{m}_p50_s"], [r[f"{m}_s"] for r in recorded])
        for m in ("ttft", "tpot")
    ]
    return [lag | {"goal": f"< {LAG_GOAL_MS:g}"}, *agreements]


def _agreement(title: str, seen_s: float, recorded_s: list[float]) -> dict[str, object]:
    """Returns a row that compares the median seen by the client with that of the engine's recorded values."""
    true_s = median(recorded_s)
    off_s, allowed_s = abs(seen_s - true_s), max(SHARE * true_s, FLOOR_S)
    name = f"{title} {seen_s * 1e3:.2f} ms, engine {true_s * 1e3:.2f} ms, apart"
    goal = f"<= {allowed_s * 1e3:.2f}"
    return {"name": name, "value": off_s * 1e3, "unit": "ms", "goal": goal, "met": off_s <= allowed_s}


def _write_trace(path: Path) -> None:
    rng, at_s, lines = Random(5), 0.0, ["arrival_s,input_tokens,output_tokens"]
    while (at_s := at_s + rng.expovariate(RATE_RPS)) < SECONDS:
        lines.append(f"{at_s:.6f},{INPUT_TOKENS},{OUTPUT_TOKENS}")
    path.write_text("\n".join(lines) + "\n")


@contextmanager
def _engine(profile: str) -> Iterator[str]:
    """Runs an emulated engine with the given profile and yields its URL once it listens."""
    command = [sys.executable, "-m", "hmas.engine", "--profile", profile, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(word for line in process.stdout for word in line.split() if word.startswith("http://"))
        finally:
            process.terminate()


if __name__ == "__main__":
    for row in rows():
        print(row)

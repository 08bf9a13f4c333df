"""What a vLLM on an H100 would do with prefill chunks of other sizes, with the mesh and without, in virtual time: was
the engine that was measured a slow one by its settings?"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean

from hmas.engine.named import named_profile
from hmas.mesh.compare.cli import MAX_MODEL_LEN
from hmas.mesh.compare.simulated import Turn, in_turn
from hmas.mesh.compare.workload import ReplayWorkload

CHUNKS = (256, 512, 1024, 2048, 8192)  # tokens: --max-num-batched-tokens
RATES_RPS = (9.0, 12.0)
SIDES = ("direct", "mesh")
WINDOW_S, PAUSE_S = 60.0, 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow:
    """Shares of the offered requests that met their SLOs (`on_time`), that for the TTFT and that for the TPOT, means
    over the seeds."""

    side: str
    rate_rps: float
    chunk: int
    on_time: float
    ttft_in_time: float
    tpot_in_time: float


def measure(profile: Path, seeds: Sequence[int], processes: int) -> list[ChunkRow]:
    """Simulates each side at each rate with each size of chunks, on one engine of the profile."""
    cells = [(profile, tuple(seeds), *cell) for cell in product(SIDES, RATES_RPS, CHUNKS)]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(_row, cells))


def _row(cell: tuple[Path, tuple[int, ...], str, float, int]) -> ChunkRow:
    path, seeds, side, rate_rps, chunk = cell
    profile = named_profile(str(path))
    profile = replace(profile, limits=replace(profile.limits, max_num_batched_tokens=chunk))
    workload = ReplayWorkload(None, MAX_MODEL_LEN)
    turns = [
        Turn(workload.at(rate_rps, WINDOW_S, seed), seed, at * (2 * WINDOW_S + PAUSE_S))
        for at, seed in enumerate(seeds)
    ]
    scores = [replay.score for replay in in_turn(side, turns, profile, 1, WINDOW_S)]
    return ChunkRow(
        side=side, rate_rps=rate_rps, chunk=chunk, on_time=fmean(s.goodput_rate for s in scores),
        ttft_in_time=fmean(s.ttft_compliance for s in scores), tpot_in_time=fmean(s.tpot_compliance for s in scores),
    )  # fmt: skip

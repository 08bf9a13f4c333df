"""How many requests are on time at each load, with the mesh and without, in virtual time.

The requests are those of `hmas compare`, the engines those of `make run`, perception and cost model those that ship.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

from hmas.engine.core.profile import builtin_profile
from hmas.mesh.compare.cli import MAX_MODEL_LEN
from hmas.mesh.compare.simulated import Turn, simulated
from hmas.mesh.compare.workload import ReplayWorkload

PROFILE, ENGINES, WINDOW_S = "tiny-emulated", 2, 60.0
RATES_RPS = (2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.5, 11.0, 13.0)
SIDES = ("direct", "mesh")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """One simulated minute of a mesh that has just begun, or of engines alone: `on_time` is the share of the offered
    requests that met their SLOs, `ttft_p50_s` the median TTFT in s."""

    side: str
    rate_rps: float
    seed: int
    on_time: float
    ttft_p50_s: float


def measure(seeds: Sequence[int], processes: int, say: Callable[[str], object]) -> list[LoadRow]:
    """Simulates each side at each rate for each seed. Raises ValueError if a package is missing."""
    return list(_told(_rows(list(product(RATES_RPS, seeds, SIDES)), processes), say))


def _rows(cells: list[tuple[float, int, str]], processes: int) -> Iterator[LoadRow]:
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_row, cells)


def _row(cell: tuple[float, int, str]) -> LoadRow:
    rate_rps, seed, side = cell
    trace = ReplayWorkload(None, MAX_MODEL_LEN).at(rate_rps, WINDOW_S, seed)
    score = simulated(side, Turn(trace, seed), builtin_profile(PROFILE), ENGINES, WINDOW_S).score
    return LoadRow(side=side, rate_rps=rate_rps, seed=seed, on_time=score.goodput_rate, ttft_p50_s=score.ttft_p50_s)


def _told(rows: Iterable[LoadRow], say: Callable[[str], object]) -> Iterator[LoadRow]:
    for row in rows:
        say(f"{row.side} at {row.rate_rps:g}/s, seed {row.seed}: {row.on_time:.3f}")
        yield row

"""Recorded days: the load of two models in each window of ten minutes, and samples of requests drawn from it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path

from experiments.plans.cases import kinds_of
from experiments.plans.planning import demand_of
from hmas.contracts.pool_plan import InstanceType
from hmas.laws.placement.demand import PoolDemand
from hmas_lab.placement.traces import PoolTraffic, alone_step_s, traffic_workload
from hmas_loadgen.traces.servegen import WINDOW_S, ClientWindow, read

WINDOWS = 144
DAY_S = WINDOWS * WINDOW_S
KAPPA = 1.5
SAMPLE_S = 45.0  # of requests, by which engines are valued under a load
RATIO = 1.15  # of neighbouring loads: a window's rate is rounded to one of these
STRICT, LAX = "t9 brief", "t9 long"


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """What a pool is asked for in a window: traces, and the rate of each in requests per second."""

    pool: str
    parts: tuple[tuple[str, float], ...]

    @property
    def rate_rps(self) -> float:
        return sum(rate_rps for _, rate_rps in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPool:
    """A model that is asked for as the clients of a recording were on its day number `day`, at `mean_rps` in the mean.

    Its requests are those of `trace`; without one, the clients with odd numbers ask for brief answers with strict SLOs,
    and the others for long ones with lax SLOs, so that the mix turns as the recorded clients come and go.
    """

    pool: str
    recording: str
    day: int
    mean_rps: float
    trace: str = ""

    def part_of(self, client: str) -> str:
        return self.trace or (STRICT if int(client) % 2 else LAX)

    def loads(self, folder: Path) -> tuple[PoolLoad, ...]:
        """Returns the load of each window. Raises TraceError if the recording in `folder` cannot be read."""
        rates: list[dict[str, float]] = [{} for _ in range(WINDOWS)]
        for each in _windows(folder / f"servegen_{self.recording}_client_rates.csv.gz"):
            number = int(each.start_s // WINDOW_S) - WINDOWS * self.day
            if 0 <= number < WINDOWS:
                part = self.part_of(each.client)
                rates[number][part] = rates[number].get(part, 0.0) + each.rate_rps
        scale = self.mean_rps * WINDOWS / sum(sum(each.values()) for each in rates)
        return tuple(PoolLoad(self.pool, _rounded((t, scale * r) for t, r in sorted(each.items()))) for each in rates)


@cache
def _windows(path: Path) -> tuple[ClientWindow, ...]:
    return read(path).windows


def _rounded(parts: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple((trace, round(RATIO ** round(log(max(rate, 0.1)) / log(RATIO)), 3)) for trace, rate in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeasonDay:
    name: str
    pools: tuple[RecordedPool, ...]

    def loads(self, folder: Path) -> tuple[tuple[PoolLoad, ...], ...]:
        """Returns the load of each pool, window by window."""
        return tuple(zip(*(pool.loads(folder) for pool in self.pools), strict=True))


def _day(name: str, qwen: tuple[str, int], llama: tuple[str, int]) -> SeasonDay:
    return SeasonDay(
        name=name,
        pools=(
            RecordedPool(pool="qwen-fp8", recording=qwen[0], day=qwen[1], mean_rps=20.0, trace="t4"),
            RecordedPool(pool="llama", recording=llama[0], day=llama[1], mean_rps=7.2, trace="t4"),
        ),
    )


DAYS = (
    _day("m-small 0, deepseek-r1", ("m-small", 0), ("deepseek-r1", 0)),
    SeasonDay(
        name="the mix turns",
        pools=(
            RecordedPool(pool="qwen-fp8", recording="m-mid", day=1, mean_rps=30.0),
            RecordedPool(pool="llama", recording="m-small", day=2, mean_rps=13.0, trace="t9"),
        ),
    ),
    _day("m-small 1, deepseek-r1", ("m-small", 1), ("deepseek-r1", 0)),
    _day("m-mid 4, m-small 9", ("m-mid", 4), ("m-small", 9)),
)


@cache
def sample(load: PoolLoad, seed: int) -> PoolDemand:
    """Returns `SAMPLE_S` seconds of a pool's requests under a load. The same object comes back for the same load."""
    kinds: tuple[InstanceType, ...] = kinds_of(load.pool)
    alone_s = alone_step_s(kinds[0].step)
    traffic = [
        PoolTraffic(pool=load.pool, trace=trace, rate_rps=rate_rps, alone_s=alone_s, kappa=KAPPA)
        for trace, rate_rps in load.parts
    ]
    return demand_of(load.pool, kinds[0].model, traffic_workload(traffic, SAMPLE_S, seed))

"""On time first, then fast: what it brings and costs that short requests go first where the others have time. The same
requests, with the order by deadline alone, and with plain FCFS."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.length_bounds import of_cell
from hmas.sim.cells import Cell, CellStore
from hmas.sim.sources import WorkloadSpec
from hmas.sim.systems import HMAS

PROFILE, ENGINES, CHUNK_TOKENS = "qwen3-32b-h100x2", 2, 1024
BEFORE, DIRECT = "hmas-deadline", "vllm"
SYSTEMS = (HMAS, BEFORE, DIRECT)
# Goals of a setting: goodput may fall by this much, and the median TTFT must be this share of what it was, where that
# is long enough to be felt.
GOAL_GOODPUT, GOAL_TTFT, GOAL_BURST_TTFT, FELT_S = -0.005, 0.6, 0.2, 0.2
GOAL_LIGHT_TTFT = 1.1  # of plain FCFS's median, where the load is light


@dataclass(frozen=True, slots=True)
class FastSetting:
    """A kind of workload at a rate in requests per second, for `seconds` unless the whole experiment is shortened;
    `file` names a trace. `light`: at about 0.8 λ*, where nobody need wait for long."""

    kind: str
    rate_rps: float
    file: str = ""
    light: bool = False
    seconds: float = 150.0

    def spec(self, most_s: float, data: Path | None) -> WorkloadSpec:
        file = str(data / self.file) if data and self.file else self.file
        return WorkloadSpec(kind=self.kind, duration_s=min(most_s, self.seconds), stated=True, file=file).labelled(data)

    @property
    def name(self) -> str:
        return f"{self.spec(1.0, None).name}, {self.rate_rps:g}/s"

    @property
    def ttft_goal(self) -> float:
        return GOAL_BURST_TTFT if self.kind == "burst" else GOAL_TTFT


CONV, CODE = "traces/azure_2023_conv.csv.gz", "traces/azure_2023_code.csv.gz"
MOONCAKE, SERVEGEN = "traces/mooncake_fast25_conversation.csv.gz", "traces/servegen_m-mid_client_rates.csv.gz"
SETTINGS = (
    FastSetting("mix", 28.6),
    FastSetting("mix", 36.4),
    FastSetting("burst", 11.0),
    FastSetting("semantic", 24.0),
    FastSetting("drift", 14.7),
    FastSetting("shift", 25.7),
    FastSetting("stress", 12.6),
    FastSetting("trace", 26.0, CONV),
    FastSetting("trace", 2.4, MOONCAKE, seconds=600.0),
    FastSetting("trace", 2.9, CODE, seconds=600.0),
    FastSetting("trace", 90.0, SERVEGEN, seconds=90.0),
    FastSetting("mix", 20.8, light=True),
    FastSetting("burst", 6.5, light=True),
    FastSetting("semantic", 16.0, light=True),
    FastSetting("trace", 16.0, CONV, light=True),
    FastSetting("trace", 1.3, MOONCAKE, light=True, seconds=600.0),
    FastSetting("trace", 1.9, CODE, light=True, seconds=600.0),
    FastSetting("trace", 59.0, SERVEGEN, light=True, seconds=90.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FastRun:
    """The figures of one run; TTFT in s, over the requests that finished. `bounds`: see `length_bounds.bounds_of`."""

    goodput_rate: float
    esg: float
    ttft_p50_s: float
    ttft_p95_s: float
    bounds: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FastRow:
    """One setting, with the runs of each system by seed."""

    setting: FastSetting
    seeds: tuple[int, ...]
    runs: dict[str, tuple[FastRun, ...]]

    def mean(self, system: str, figure: str) -> float:
        return fmean(getattr(run, figure) for run in self.runs[system])

    def gained(self) -> tuple[float, ...]:
        """Returns by how much the goodput rate is higher than with the order by deadline, seed by seed."""
        pairs = zip(self.runs[HMAS], self.runs[BEFORE], strict=True)
        return tuple(now.goodput_rate - before.goodput_rate for now, before in pairs)

    @property
    def ttft_ratio(self) -> float:
        return self.mean(HMAS, "ttft_p50_s") / self.mean(BEFORE, "ttft_p50_s")

    def missed(self) -> list[str]:
        """Returns the goals that the means over the seeds miss, in words."""
        found = []
        if fmean(self.gained()) < GOAL_GOODPUT:
            found.append(f"goodput {100 * fmean(self.gained()):+.1f} points")
        over_direct = self.mean(HMAS, "ttft_p50_s") / self.mean(DIRECT, "ttft_p50_s")
        if self.setting.light and over_direct > GOAL_LIGHT_TTFT:
            found.append(f"median TTFT {over_direct:.2f} × plain FCFS's, goal {GOAL_LIGHT_TTFT:g} ×")
        felt = not self.setting.light and self.mean(BEFORE, "ttft_p50_s") > FELT_S
        if felt and self.ttft_ratio > self.setting.ttft_goal:
            found.append(f"median TTFT {self.ttft_ratio:.2f} ×, goal {self.setting.ttft_goal:g} ×")
        if self.mean(HMAS, "ttft_p95_s") > self.mean(BEFORE, "ttft_p95_s"):
            found.append("TTFT p95 is longer")
        if self.mean(HMAS, "esg") < self.mean(DIRECT, "esg"):
            found.append("ESG is below plain FCFS")
        return found


def cells_of_fast(seeds: Sequence[int], seconds: float, data: Path | None) -> list[Cell]:
    """Returns the runs, without those of traces if there is no folder of data."""
    return [
        _cell(setting, system, seed, seconds, data)
        for seed in seeds
        for setting in SETTINGS
        if data or not setting.file
        for system in SYSTEMS
    ]


def _cell(setting: FastSetting, system: str, seed: int, seconds: float, data: Path | None) -> Cell:
    return Cell(
        kind="run",
        profile=PROFILE,
        engines=ENGINES,
        workload=setting.spec(seconds, data),
        load=setting.rate_rps,
        absolute=True,
        seed=seed,
        system=system,
        chunk_tokens=CHUNK_TOKENS,
    )


def rows_of_fast(seeds: Sequence[int], seconds: float, data: Path | None, store: CellStore) -> list[FastRow]:
    """Returns a row per setting, over the seeds that have been run with every system."""
    rows = []
    for setting in SETTINGS:
        found = {
            (system, seed): store.get(_cell(setting, system, seed, seconds, data))
            for system in SYSTEMS
            for seed in seeds
        }
        whole = tuple(seed for seed in seeds if all(found[system, seed] is not None for system in SYSTEMS))
        if whole:
            runs = {system: tuple(_run(found[system, seed]) for seed in whole) for system in SYSTEMS}
            rows.append(FastRow(setting=setting, seeds=whole, runs=runs))
    return rows


def _run(found: dict[str, Any] | None) -> FastRun:
    assert found is not None
    score = found["score"]
    return FastRun(
        goodput_rate=score["goodput_rate"],
        esg=score["esg_rate"],
        ttft_p50_s=score["ttft_p50_s"],
        ttft_p95_s=score["ttft_p95_s"],
        bounds=of_cell(found),
    )

"""On time first, then fast: what it brings and costs that short requests go first where the others have time. The same
requests, with the order by deadline alone, and with plain FCFS."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from experiments import length_bounds
from experiments.length_bounds import of_cell
from experiments.study import Figures, Finished, Options, Study
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.sources import WorkloadSpec
from hmas_lab.sim.systems import HMAS

PROFILE, ENGINES, CHUNK_TOKENS = "qwen3-32b-h100x2", 2, 1024
BEFORE, DIRECT = "hmas-deadline", "vllm"
NAMES = {HMAS: "default", BEFORE: "by deadline alone", DIRECT: "plain FCFS"}
SYSTEMS = tuple(NAMES)
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
class FastRow:
    """One setting, with the figures of each system's runs by seed; TTFT is over the requests that finished."""

    setting: FastSetting
    seeds: tuple[int, ...]
    runs: dict[str, tuple[Figures, ...]]

    def mean(self, system: str, figure: str) -> float:
        return fmean(run["score"][figure] for run in self.runs[system])

    def gained(self) -> tuple[float, ...]:
        """Returns by how much the goodput rate is higher than with the order by deadline, seed by seed."""
        pairs = zip(self.runs[HMAS], self.runs[BEFORE], strict=True)
        return tuple(now["score"]["goodput_rate"] - before["score"]["goodput_rate"] for now, before in pairs)

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
        if self.mean(HMAS, "esg_rate") < self.mean(DIRECT, "esg_rate"):
            found.append("ESG is below plain FCFS")
        return found


def cells_of(options: Options, found: Finished) -> list[list[Cell]]:
    """Returns the runs, without those of traces if there is no folder of data."""
    there = [setting for setting in SETTINGS if options.data or not setting.file]
    return [[_cell(each, system, n, options) for n in options.numbers for each in there for system in SYSTEMS]]


def _cell(setting: FastSetting, system: str, seed: int, options: Options) -> Cell:
    return Cell(
        kind="run",
        profile=PROFILE,
        engines=ENGINES,
        workload=setting.spec(options.seconds, options.data),
        load=setting.rate_rps,
        absolute=True,
        seed=seed,
        system=system,
        chunk_tokens=CHUNK_TOKENS,
    )


def rows_of(options: Options, found: Finished) -> list[FastRow]:
    """Returns a row per setting, over the seeds that have been run with every system."""
    rows = []
    for setting in SETTINGS:
        by_seed = {n: [found.get(_cell(setting, s, n, options)) for s in SYSTEMS] for n in options.numbers}
        whole = {n: [run for run in runs if run] for n, runs in by_seed.items() if all(runs)}
        if whole:
            runs = dict(zip(SYSTEMS, map(tuple, zip(*whole.values(), strict=True)), strict=True))
            rows.append(FastRow(setting=setting, seeds=tuple(whole), runs=runs))
    return rows


def page_of(rows: Sequence[FastRow], options: Options, found: Finished) -> dict[str, object]:
    seconds = options.seconds
    return {
        "profile": PROFILE,
        "engines": ENGINES,
        "chunk_tokens": CHUNK_TOKENS,
        "seconds": ", ".join(f"{s:g}" for s in sorted({min(seconds, row.setting.seconds) for row in rows})),
        "bounds": length_bounds.told(of_cell(run) for row in rows for runs in row.runs.values() for run in runs),
        "settings": [_figures(row, system) for row in rows for system in SYSTEMS],
        "pairs": [_pair(row) for row in rows],
        "missed": sum(bool(row.missed()) for row in rows),
        "trades": [_trade(row) for row in rows if row.mean(HMAS, "esg_rate") < row.mean(DIRECT, "esg_rate")],
    }


def _figures(row: FastRow, system: str) -> tuple[str, ...]:
    return (
        row.setting.name,
        NAMES[system],
        f"{row.mean(system, 'goodput_rate'):.3f}",
        f"{row.mean(system, 'ttft_p50_s'):.2f}",
        f"{row.mean(system, 'ttft_p95_s'):.1f}",
        f"{row.mean(system, 'esg_rate'):.0f}",
    )


def _pair(row: FastRow) -> tuple[str, ...]:
    by_seed = " ".join(f"{100 * gained:+.1f}" for gained in row.gained())
    missed = "; ".join(row.missed()) or "-"
    return row.setting.name, str(len(row.seeds)), by_seed, f"{row.ttft_ratio:.2f} ×", missed


def _trade(row: FastRow) -> str:
    """Returns what a setting in which plain FCFS has more ESG gets for it, and whether the switch gives it back."""
    direct, now, before = (row.mean(system, "esg_rate") for system in (DIRECT, HMAS, BEFORE))
    more = row.mean(HMAS, "goodput_rate") - row.mean(DIRECT, "goodput_rate")
    back = "has as much ESG as FCFS" if before >= direct else f"is {_less(before, direct)} below FCFS as well"
    return (
        f"{row.setting.name}: {_less(now, direct)} less ESG than plain FCFS for {100 * more:.1f} points more goodput; "
        f"the order by deadline alone {back}"
    )


def _less(esg: float, direct: float) -> str:
    return f"{100 * (1 - esg / direct):.1f} %"


def _plain(row: FastRow, system: str) -> dict[str, object]:
    means = {name: round(row.mean(system, name), 4) for name in ("goodput_rate", "ttft_p50_s", "ttft_p95_s")}
    by_seed = [round(run["score"]["goodput_rate"], 4) for run in row.runs[system]]
    named = {"setting": row.setting.name, "system": system, "seeds": list(row.seeds)}
    return {**named, **means, "esg": round(row.mean(system, "esg_rate"), 4), "goodput_rate_by_seed": by_seed}


STUDY = Study(
    name="fast",
    about="Measures what it brings and costs that short requests go first where the others have time.",
    takes=("out", "seeds", "seconds", "processes", "cells", "data", "pages_only"),
    defaults=Options(seconds=600.0),
    cells=cells_of,
    rows=rows_of,
    values=page_of,
    also=lambda rows, options, found: {"fast.json": [_plain(row, system) for row in rows for system in SYSTEMS]},
)

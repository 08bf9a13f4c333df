"""Does a mesh that only observes foretell what scheduling brings? Ten hours of a recorded day in virtual time: each is
played observed, with what `hmas report` says of it, and then the same requests again as scheduled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any

import numpy as np

from experiments.pages.goal import Goal
from experiments.study import Figures, Finished, Options, Study, code_of_mesh, written
from hmas.contracts.control_agents import RehearsalAnswered, Rehearse
from hmas.contracts.past import PastBlock
from hmas.engine.core.profile import builtin_profile
from hmas.gateway.agent.config import GatewayConfig
from hmas.laws.scheduling_gains import gain_sum
from hmas.laws.scoring import is_ok
from hmas.meta.agent.config import ForetellingConfig, MetaConfig
from hmas.sim.offered import offered
from hmas.sim.past.rehearsal import of_blocks
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import Workload
from hmas_lab.sim.sources import TENANTS
from hmas_lab.sim.stored import cell_key
from hmas_loadgen.slo import TASKS, annotate, assign_tenants
from hmas_loadgen.traces.servegen import ServeGenRates, read
from hmas_loadgen.workloads.lengths import task_lengths

RECORDING = "servegen_m-small_client_rates.csv.gz"
HOURS = tuple(range(12, 22))  # of the first recorded day: from its quiet noon to its busiest evening hours
PROFILE, ENGINES = "llama2-70b-a100x4", 2
MEAN_RPS = 4.0  # of the recorded day; these engines sustain 3.7 requests/s of these tasks
WITHIN, RIGHT = 0.05, 9  # points, and hours of ten
HOUR_S = 3600.0
CUTOFF_S = 120.0
ESTIMATOR = "noisy"  # as wrong about lengths as a good model is, and without the time of one


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedHour:
    """The first `seconds` of an hour of the recorded day."""

    hour: int
    seconds: float = HOUR_S
    every_s: float = 300.0  # between two foretellings, each of as many seconds: every request is judged once

    def key(self) -> str:
        return cell_key(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRow:
    """Shares on time in an hour: as it was observed, foretold with the ends of its interval, and as scheduled. `told`
    and `abstained` count the foretellings; `foretold` None: all abstained."""

    hour: int
    requests: int
    rps: float
    observed: float
    foretold: float | None
    low: float | None
    high: float | None
    scheduled: float
    told: int
    abstained: int

    @property
    def miss(self) -> float | None:
        return None if self.foretold is None else self.foretold - self.scheduled

    @property
    def right(self) -> bool:
        return self.miss is not None and abs(self.miss) <= WITHIN


def compute(cell: ObservedHour, folder: Path) -> Figures:
    """Plays an hour twice, and returns what was, what was foretold and what came."""
    began_s, workload = process_time(), hour_of(folder, cell)
    base = MeshSetup(name="observed-day", estimator=ESTIMATOR)
    meta = MetaConfig(foretelling=ForetellingConfig(every_s=cell.every_s, window_s=cell.every_s, least_requests=0.0))
    observing = replace(base, gateway_config=GatewayConfig(gateway="g0", observe=True), meta_config=meta)
    raw: list[dict[str, Any]] = []

    def rehearsal(effect: Rehearse, blocks: Sequence[PastBlock]) -> RehearsalAnswered:
        answered = of_blocks(effect, blocks)
        raw.append(figures_of(answered))
        return answered

    profile = builtin_profile(PROFILE)
    watched = MeshSim(observing, profile, ENGINES, workload, cell.hour, cutoff_s=CUTOFF_S, rehearsal=rehearsal)
    was = watched.run().settlements
    made = MeshSim(base, profile, ENGINES, workload, cell.hour, cutoff_s=CUTOFF_S).run().settlements
    told = gain_sum(gain for _, gain in watched.control.gains)
    return {
        "requests": len(workload.requests),
        "rps": workload.rate_rps,
        "observed": fmean(map(is_ok, was)),
        "scheduled": fmean(map(is_ok, made)),
        "foretold": told.scheduled,
        "low": told.low,
        "high": told.high,
        "told": told.told,
        "abstained": told.abstained,
        "reasons": told.reasons,
        "raw": raw,
        "cpu_s": process_time() - began_s,
    }


def figures_of(answered: RehearsalAnswered) -> dict[str, Any]:
    """Returns what a foretelling said, for the other ways to make a share of it."""
    found = answered.rehearsal
    if found is None:
        return {"error": answered.error}
    return {
        "requests": found.observed.requests, "observed": found.observed.on_time, "played": found.in_force.on_time,
        "candidate": [each.figures.on_time for each in found.candidates],
        "gain": [each.gain for each in found.candidates], "abstains": found.abstains,
    }  # fmt: skip


def hour_of(folder: Path, cell: ObservedHour) -> Workload:
    """Returns the requests of an hour: arrivals as recorded of each client, task types and lengths of H-MAS App. E.5.
    Raises TraceError if the recording cannot be read."""
    rates = recorded(folder / RECORDING)
    start_s = HOUR_S * cell.hour
    scale = MEAN_RPS / mean_rps(rates)
    rate_rps = scale * rate_between(rates, start_s, start_s + HOUR_S)
    trace = rates.generate(start_s, cell.seconds, rate_rps, cell.hour)
    rng = np.random.default_rng([cell.hour, 0x6F6273])
    tasks = [TASKS[int(i)] for i in rng.integers(0, len(TASKS), len(trace.rows))]
    inputs, outputs = task_lengths(tasks, rng)
    columns = zip(trace.rows, tasks, inputs.tolist(), outputs.tolist(), strict=True)
    rows = [replace(row, task=task, input_tokens=i, output_tokens=o) for row, task, i, o in columns]
    typed = annotate(trace.derived(rows, "13 task types evenly"), cell.hour)
    shared = assign_tenants(typed, dict(TENANTS), cell.hour)
    name = f"hour {cell.hour}"
    return offered(shared, name, cell.seconds, cell.hour, stated=True, prompts=False).fitting(builtin_profile(PROFILE))


@cache
def recorded(path: Path) -> ServeGenRates:
    return read(path)


def rate_between(rates: ServeGenRates, start_s: float, end_s: float) -> float:
    """Returns the mean rate of all clients from one instant to another, in requests/s."""
    return sum(each.rate_rps for each in rates.windows if start_s <= each.start_s < end_s) * 600.0 / (end_s - start_s)


def mean_rps(rates: ServeGenRates) -> float:
    return rate_between(rates, 0.0, 24.0 * HOUR_S)


def day_cells(options: Options) -> list[ObservedHour]:
    seconds = options.seconds or HOUR_S
    return [ObservedHour(hour=hour, seconds=seconds, every_s=min(300.0, seconds / 2.0)) for hour in HOURS]


def cells(options: Options, found: Finished) -> Iterator[Sequence[ObservedHour]]:
    yield day_cells(options)


def given(cell: ObservedHour, options: Options, found: Finished) -> tuple[Path]:
    if options.data is None:
        raise ValueError("this needs a recorded day: give --data FOLDER with traces/ in it")
    return (options.data / "traces",)


def rows_of(options: Options, found: Finished) -> list[HourRow]:
    """Returns the hours that were played; if there are none, those that lie in `options.out`."""
    runs = [(cell.hour, run) for cell in day_cells(options) if (run := found.get(cell)) is not None]
    names = [name for name in HourRow.__dataclass_fields__ if name != "hour"]
    made = [HourRow(hour=hour, **{name: run[name] for name in names}) for hour, run in runs]
    return made or written(HourRow, options.out / "observed-day.json")


def goals(rows: Sequence[HourRow]) -> list[Goal]:
    right, whole = sum(row.right for row in rows), len(rows) == len(HOURS)
    return [
        Goal(
            f"foretold within {100 * WITHIN:g} points in at least {RIGHT} of {len(HOURS)} hours",
            f"{right} of {len(rows)}, cannot be said in {sum(row.foretold is None for row in rows)}",
            right >= RIGHT if whole else None,
        )
    ]


def page_of(rows: Sequence[HourRow], options: Options, found: Finished) -> dict[str, object]:
    return {
        "seconds": options.seconds or HOUR_S, "profile": PROFILE, "engines": ENGINES, "recording": RECORDING,
        "mean_rps": MEAN_RPS, "estimator": ESTIMATOR,
        "rows": [
            (
                f"{row.hour}:00", str(row.requests), f"{row.rps:.1f}", f"{row.observed:.3f}",
                *(("-", "-") if row.foretold is None or row.low is None or row.high is None
                  else (f"{row.foretold:.3f}", f"{row.low:.2f} to {row.high:.2f}")),
                f"{row.scheduled:.3f}", "-" if row.miss is None else f"{100 * row.miss:+.1f}",
                f"{row.told} of {row.told + row.abstained}",
            )
            for row in rows
        ],
    }  # fmt: skip


STUDY = Study(
    name="observed-day",
    about="Plays ten hours of a recorded day in virtual time, observed and as scheduled, and compares what "
    "`hmas report` foretells from the first with the second. A whole hour takes about ten minutes of a core.",
    takes=("out", "seconds", "processes", "cells", "data", "pages_only"),
    defaults=Options(cells=Path("out/observed-day")),
    cells=cells,
    given=given,
    compute=compute,
    code=code_of_mesh,
    rows=rows_of,
    goals=goals,
    values=page_of,
)

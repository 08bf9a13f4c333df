"""Measures in simulation how often answers outgrow the length bound under which the fence admitted them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.execute import cells_of
from experiments.pages.carried import merged, present_commit, told
from experiments.study import Finished, Options, Study
from hmas.statera.agent.config import FenceConfig
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.experiment import Experiment, load_experiment

FILE = Path(__file__).with_name("fence.yaml")
BEFORE = "fence_before.json"  # the rows of the additive fence that was measured before this one, by the same command
LEAST_IN_BUCKET = 1000  # requests, over all seeds, from which on a prompt-length bucket is judged
# How far the share of outgrown bounds may be from epsilon: over a run, in a bucket, in a fifth but the first.
ALLOWED, ALLOWED_IN_BUCKET, ALLOWED_IN_FIFTH = 0.025, 0.05, 0.04
SAME_LOAD = 0.02  # by which the requests of two runs may differ and be compared
ALLOWED_LOSS = 0.005  # of the goodput rate, against the fence that was measured before


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceRow:
    """One workload at one load (in units of lambda*), with `requests` admitted over all `seeds`. Of these, the share
    `outgrown` had answers longer than their bound. `worst_bucket` and `worst_fifth` are the shares farthest from
    `epsilon` among the prompt-length buckets with enough requests (None without any) and among the fifths of the run
    but the first; `worst_seed` is that of a single run. `at_grant` is the share that outgrew the bound of the grant,
    made without the tags that came after it. `unused_blocks` is the share of the reserved KV blocks that
    answers never filled. `first_requests` and `first_goodput_rate` are those of the first seed alone, by which a
    fence of one seed is compared."""

    workload: str
    load: float
    seeds: int
    epsilon: float
    outgrown: float
    worst_bucket: float | None
    worst_fifth: float
    worst_seed: float
    at_grant: float
    unused_blocks: float
    requests: int
    goodput_rate: float
    first_requests: int = 0
    first_goodput_rate: float | None = None
    commit: str = ""  # whose code computed it

    def change_from(self, before: Mapping[str, Any]) -> float | None:
        """Returns by how much the goodput rate is higher than that of a fence of one seed; None if that seed's run
        admitted another number of requests, so that it had another load."""
        if self.first_goodput_rate is None or before["seeds"] != 1:
            return None
        if abs(self.first_requests / before["requests"] - 1.0) > SAME_LOAD:
            return None
        return self.first_goodput_rate - float(before["goodput_rate"])

    @property
    def missed(self) -> str:
        """Which shares are farther from epsilon than they should be, in words."""
        goals = (
            ("all of it", self.outgrown, ALLOWED),
            ("worst bucket", self.worst_bucket, ALLOWED_IN_BUCKET),
            ("worst fifth", self.worst_fifth, ALLOWED_IN_FIFTH),
        )
        far = [(name, x) for name, x, most in goals if x is not None and abs(x - self.epsilon) > most + 1e-9]
        return ", ".join(f"{name} {100 * x:.1f} %" for name, x in far)

    @property
    def holds(self) -> bool:
        """Whether every share is as close to epsilon as it should be."""
        return not self.missed


def experiment_of(options: Options) -> Experiment:
    """Returns the experiment with the data and the seeds that there are to be."""
    experiment = load_experiment(FILE).within(options.data)
    return replace(experiment, seeds=experiment.seeds[: options.seeds])


def runs_of(experiment: Experiment) -> list[Cell]:
    """Returns the cells of the experiment without the upper bounds, which this page does not show."""
    return [cell for cell in cells_of(experiment) if cell.kind == "run"]


def rows_of(options: Options, store: Finished) -> list[FenceRow]:
    """Returns a row for every workload and load of which a run is stored, and the rows of the page before for the
    others, each with the commit whose code computed it."""
    found, cells = [], runs_of(options.part(experiment_of(options)))
    for name, load in dict.fromkeys((cell.workload.name, cell.load) for cell in cells):
        runs = [run for c in cells if (c.workload.name, c.load) == (name, load) and (run := store.get(c)) is not None]
        if runs:
            found.append(replace(row_of(name, load, runs), commit=present_commit()))
    return merged(found, options.out / "fence.json", lambda row: FenceRow(**row), lambda row: (row.workload, row.load))


def row_of(workload: str, load: float, found: Sequence[dict[str, Any]]) -> FenceRow:
    """Returns the row of one workload and load from the stored figures of its runs, one per seed."""
    epsilon = FenceConfig().epsilon
    parts = [figures["run"]["coverage"] for figures in found]
    buckets = [b for b in _pooled([p["buckets"] for p in parts]) if b[0] >= LEAST_IN_BUCKET]
    fifths = [f for f in _pooled([p["fifths"] for p in parts])[1:] if f[0]]

    def worst(tallies: Sequence[tuple[int, int]]) -> float:
        return max((_share(t) for t in tallies), key=lambda share: abs(share - epsilon))

    seeds = [(p["total"]["admitted"], p["total"]["outgrown"]) for p in parts]
    total = sum(n for n, _ in seeds), sum(n for _, n in seeds)
    return FenceRow(
        workload=workload,
        load=load,
        seeds=len(found),
        epsilon=epsilon,
        outgrown=_share(total),
        worst_bucket=worst(buckets) if buckets else None,
        worst_fifth=worst(fifths),
        worst_seed=worst(seeds),
        at_grant=_share(_pooled([[p["at_grant"]] for p in parts])[0]),
        unused_blocks=round(sum(p["unused_blocks"] for p in parts) / sum(p["reserved_blocks"] for p in parts), 4),
        requests=total[0],
        goodput_rate=round(fmean(figures["score"]["goodput_rate"] for figures in found), 4),
        first_requests=seeds[0][0],
        first_goodput_rate=round(found[0]["score"]["goodput_rate"], 4),
    )


def _pooled(parts: Sequence[Sequence[dict[str, int]]]) -> list[tuple[int, int]]:
    """Returns pairs (admitted, outgrown), summed over the runs."""
    return [(sum(t["admitted"] for t in same), sum(t["outgrown"] for t in same)) for same in zip(*parts, strict=True)]


def _share(tally: tuple[int, int]) -> float:
    admitted, outgrown = tally
    return round(outgrown / admitted, 4)


def page_of(found: Sequence[FenceRow], options: Options, store: Finished) -> dict[str, object]:
    """If `BEFORE` lies in `options.out`, its goodput stands beside."""
    there = options.out / BEFORE
    before = {(r["workload"], r["load"]): r for r in (json.loads(there.read_text()) if there.exists() else ())}
    rows = [(row, before.get((row.workload, row.load))) for row in found]
    changes = {(r.workload, r.load): r.change_from(then) for r, then in rows if then is not None}
    losses = [(-change, row) for row, _ in rows if (change := changes.get((row.workload, row.load))) is not None]
    return {
        "experiment": experiment_of(options), "rows": rows, "broken": [row for row in found if not row.holds],
        "compared": len(losses), "others": sum(change is None for change in changes.values()), "changes": changes,
        "lost": [(100.0 * lost, r) for lost, r in sorted(losses, key=lambda pair: -pair[0]) if lost > ALLOWED_LOSS],
        "most_lost": 100.0 * max((lost for lost, _ in losses), default=0.0),
        "carried": told(found, present_commit()), "SAME_LOAD": SAME_LOAD, "ALLOWED": ALLOWED,
        "ALLOWED_IN_BUCKET": ALLOWED_IN_BUCKET, "ALLOWED_IN_FIFTH": ALLOWED_IN_FIFTH, "ALLOWED_LOSS": ALLOWED_LOSS,
        "LEAST_IN_BUCKET": LEAST_IN_BUCKET,
    }  # fmt: skip


STUDY = Study(
    name="fence",
    about="Measures how often answers outgrow the fence's length bounds, on ten workloads with the perception that "
    "ships. It takes about an hour of one core. Settings that are not run keep the rows of the page before, with the "
    "commit whose code computed them.",
    takes=("out", "seeds", "processes", "cells", "data", "only", "at", "pages_only"),
    cells=lambda options, found: [runs_of(options.part(experiment_of(options)))],
    rows=rows_of,
    values=page_of,
)

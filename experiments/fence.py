"""Measures in simulation how often answers outgrow the length bound under which the fence admitted them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from experiments.execute import Progress, cells_of, execute_cells
from hmas.sim.cells import Cell, CellStore
from hmas.sim.experiment import Experiment
from hmas.statera.agent.config import FenceConfig

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


def runs_of(experiment: Experiment) -> list[Cell]:
    """Returns the cells of the experiment without the upper bounds, which this page does not show."""
    return [cell for cell in cells_of(experiment) if cell.kind == "run"]


def measure(experiment: Experiment, store: CellStore, processes: int, progress: Progress) -> None:
    """Computes the missing runs of the experiment and stores them."""
    execute_cells(runs_of(experiment), store, processes, progress)


def rows(experiment: Experiment, store: CellStore, commit: str) -> Iterator[FenceRow]:
    """Yields a row for every workload and load of which a run is stored, computed by the code of `commit`."""
    for spec in experiment.workloads:
        for load in experiment.loads:
            cells = [c for c in runs_of(experiment) if c.load == load and c.workload.name == spec.name]
            found = [figures for cell in cells if (figures := store.get(cell)) is not None]
            if found:
                yield replace(row_of(spec.name, load, found), commit=commit)


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

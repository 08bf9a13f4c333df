"""How much is lost where several gateways and workers share the engines, against one central queue over all of them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.length_bounds import bounds_of
from hmas.engine.core.profile import builtin_profile
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.stored import cell_key
from hmas_lab.sim.systems import MESHES, needs_prompts, read_by

PROFILE = "tiny-emulated"
ENGINES = 8
SYSTEM = "hmas"
WORKLOADS = ("mix", "burst", "azure_2023_conv")
LOADS = (1.1, 1.4)
WORKERS, GATEWAYS = (1, 2, 4, 8), (1, 4, 8)
STALE_S = 3.0  # between two reports of a load in the rows with stale news, instead of one second


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyCell:
    """One run. `load` is in λ* of plain FCFS on the same engines. `stale`: gateways hear of loads every `STALE_S`."""

    workload: str
    load: float
    seconds: float
    seed: int
    workers: int
    gateways: int
    stale: bool = False

    def key(self) -> str:
        return cell_key(self)

    def spec(self, data: Path) -> WorkloadSpec:
        spec = WorkloadSpec(kind=self.workload, duration_s=self.seconds, stated=True)
        if self.workload.startswith("azure"):
            file = str(data / "traces" / f"{self.workload}.csv.gz")
            spec = replace(spec, kind="trace", file=file, start_s=self.seed * self.seconds)
        return spec.labelled(data)

    def capacity(self, data: Path) -> Cell:
        """Returns the cell of the λ* of this workload."""
        spec = replace(self.spec(data), start_s=0.0)
        return Cell(kind="capacity", profile=PROFILE, engines=ENGINES, workload=spec)


def cells(seeds: Iterable[int], seconds: float) -> list[ManyCell]:
    """Returns all runs, those of one seed before those of the next."""
    return [
        ManyCell(workload=kind, load=load, seconds=seconds, seed=seed, workers=workers, gateways=gateways, stale=stale)
        for seed in seeds
        for workers in WORKERS
        for gateways in GATEWAYS
        for stale in (False, True)
        for load in LOADS
        for kind in WORKLOADS
    ]


def measure(cell: ManyCell, rate_rps: float, data: Path) -> dict[str, Any]:
    """Returns the goodput of a run at `rate_rps` requests per second, and how evenly its engines ran."""
    profile = builtin_profile(PROFILE)
    offered = build(cell.spec(data), rate_rps, cell.seed, prompts=needs_prompts(SYSTEM))
    workload = read_by(SYSTEM, offered).fitting(profile)
    setup: MeshSetup = replace(MESHES[SYSTEM], workers=cell.workers, gateways=cell.gateways)
    if cell.stale:
        setup = replace(setup, cadences=replace(setup.cadences, heartbeat_s=STALE_S))
    mesh = MeshSim(setup, profile, ENGINES, workload, cell.seed, cutoff_s=300.0)
    result = mesh.run()
    busy = [endpoint.engine.busy_s for endpoint in mesh.endpoints.values()]
    return {
        "requests": len(workload.requests),
        "goodput": result.score.goodput_rate,
        "busy_ratio": max(busy) * len(busy) / sum(busy),
        **bounds_of(result.run),
    }

"""Cells: the smallest pieces of the experiments (a lambda*, a bound or a run), each computed once and kept in a store
under a digest of its parameters and of the code that it depends on."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any, Literal

from hmas.engine.core.profile import EngineProfile
from hmas.engine.named import is_file, named_profile
from hmas.sim.effect_log import EffectLog
from hmas.sim.faults import Fault
from hmas_lab.sim.analysis import analyse
from hmas_lab.sim.baselines.systems import loosest, predicts
from hmas_lab.sim.bound import upper_bound
from hmas_lab.sim.capacity import find_capacity
from hmas_lab.sim.experiment import chunked
from hmas_lab.sim.provenance import ENGINES_ONLY, WITH_MESH, source_digest
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.stored import Stored, cell_key
from hmas_lab.sim.systems import MESHES, needs_prompts, read_by, run_system

Kind = Literal["capacity", "bound", "run"]
GUESS_RPS = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The parameters of one lambda*, bound or run. `load` is in units of lambda*, or in requests per second if
    `absolute`. `seed` is 0 and `system` is empty where they play no part. `chunk_tokens` replaces the profile's token
    budget per step, `kv_blocks` its KV blocks, and `capacity_s` the length of the workload that lambda* is found on;
    None keeps them."""

    kind: Kind
    profile: str
    engines: int
    workload: WorkloadSpec
    load: float = 0.0
    absolute: bool = False
    seed: int = 0
    system: str = ""
    workers: int = 1
    gateways: int = 1
    faults: tuple[Fault, ...] = ()
    chunk_tokens: int | None = None
    kv_blocks: int | None = None
    capacity_s: float | None = None

    @property
    def engine(self) -> EngineProfile:
        """The engines' profile with the limits of this cell."""
        profile = chunked(named_profile(self.profile), self.chunk_tokens)
        return profile if self.kv_blocks is None else profile.with_limits(num_gpu_blocks=self.kv_blocks)

    @property
    def capacity(self) -> "Cell":
        """The cell of the lambda* in whose units the load of this cell is stated."""
        return Cell(
            kind="capacity",
            profile=self.profile,
            engines=self.engines,
            # FCFS does not read the SLOs.
            workload=replace(self.workload, stated=False, duration_s=self.capacity_s or self.workload.duration_s),
            chunk_tokens=self.chunk_tokens,
            kv_blocks=self.kv_blocks,
        )

    @property
    def bound(self) -> "Cell":
        """The cell of the upper bound for the same workload."""
        return replace(self, kind="bound", system="", workers=1, gateways=1, faults=())

    def key(self) -> str:
        if is_file(self.profile):  # what the file says, not where it lies
            return cell_key(replace(self, profile=repr(named_profile(self.profile))))
        return cell_key(self)


def code_of(cell: Cell) -> str:
    """Returns the digest of the code that the cell's figures depend on."""
    return source_digest(WITH_MESH if cell.system in MESHES or predicts(cell.system) else ENGINES_ONLY)


class CellStore:
    """Keeps one JSON file per cell under `folder/<digest of its code>`, so that results of different code are never
    mixed. A file is written whole or not at all."""

    def __init__(self, folder: Path, digest: Callable[[Any], str] = code_of) -> None:
        self._folder = folder
        self._digest = digest

    def _path(self, cell: Stored) -> Path:
        return self._folder / self._digest(cell) / f"{cell.key()}.json"

    def get(self, cell: Stored) -> dict[str, Any] | None:
        path = self._path(cell)
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def put(self, cell: Stored, result: dict[str, Any]) -> None:
        path = self._path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps({"cell": asdict(cell), **result}), encoding="utf-8")
        part.replace(path)


def compute(cell: Cell, rate_rps: float = 0.0, *, hashed: bool = False) -> dict[str, Any]:
    """Computes the cell and returns its figures as plain data.

    `rate_rps` is the offered rate of a bound or a run, in requests per second. With `hashed`, a run's figures include
    the SHA-256 of all effects.
    """
    started = process_time()
    profile = cell.engine
    if cell.kind == "capacity":
        found = find_capacity(lambda r, s: build(cell.workload, r, s), profile, cell.engines, GUESS_RPS)
        return asdict(found) | {"cpu_s": process_time() - started}
    workload = read_by(cell.system, build(cell.workload, rate_rps, cell.seed, prompts=needs_prompts(cell.system)))
    workload = workload.fitting(profile)
    if cell.kind == "bound":
        limit = upper_bound(workload, loosest(profile), cell.engines)
        result = {"requests": limit.requests, "offered": limit.offered, "goodput_rate": limit.goodput_rate}
        return result | {"note": workload.note, "cpu_s": process_time() - started}
    log = EffectLog() if hashed else None
    run = run_system(
        cell.system,
        workload,
        profile,
        cell.engines,
        cell.seed,
        log,
        cell.workers,
        gateways=cell.gateways,
        faults=cell.faults,
    )
    extra = {"rate_rps": rate_rps, "hash": log.digest() if log else ""}
    return analyse(workload, run) | extra | {"cpu_s": process_time() - started}

"""Ways to serve what a pool is offered on the engines of a plan, so that one plan can be judged under each of them."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from hmas.contracts.control import INITIAL_TOPOLOGY, Split, StepTime
from hmas.contracts.pool_plan import InstanceType
from hmas.engine.core.catalogued import profile_of
from hmas.laws.layout import pace_class
from hmas.laws.scoring import Settlement
from hmas.sim.processes.fleet import Baseline, EngineFleet, FleetSetting
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup, PoolSetup
from hmas.sim.vllm import VLLM
from hmas.sim.workload import Workload
from hmas.statera.agent.config import NRunConfig, StateraConfig, StepMeterConfig
from hmas_lab.placement.distributor import MaasoRouter
from hmas_lab.placement.maaso import pace_slo_s

CUTOFF_S = 60.0  # after the last second; what has not ended by then is late


class Way(StrEnum):
    """How requests are brought to engines: to that with the fewest outstanding ones (FCFS); the same within classes;
    by MaaSO's distributor within classes; by the mesh that ships, which chooses its own layout; by the mesh with the
    layout of the plan from the start."""

    FCFS = "fcfs"
    CLASSES = "classes"
    DISTRIBUTOR = "distributor"
    MESH = "mesh"
    PLANNED = "planned"


def served(way: Way, workload: Workload, engines: Sequence[InstanceType], split: Split, seed: int) -> list[Settlement]:
    """Serves one pool's workload on `engines`, in the order in which the classes of `split` get them, and returns how
    each request ended. Without cuts, and under FCFS, all share all engines; the mesh does not read `split`."""
    match way:
        case Way.FCFS:
            return _fleet(VLLM, workload, engines, seed)
        case Way.MESH:
            return _mesh(workload, engines, seed)
        case Way.PLANNED:
            return _mesh(workload, engines, seed, split)
        case Way.CLASSES:
            parts = class_parts(workload, engines, split)
            return [each for part, own in parts for each in _fleet(VLLM, part, own, seed)]
        case Way.DISTRIBUTOR:
            found = []
            for part, own in class_parts(workload, engines, split):
                router = MaasoRouter(part.requests)
                maaso = replace(VLLM, name="maaso", router=lambda _, own_router=router: own_router)  # type: ignore[misc]
                found += _fleet(maaso, part, own, seed)
            return found


def class_parts(
    workload: Workload, engines: Sequence[InstanceType], split: Split
) -> list[tuple[Workload, Sequence[InstanceType]]]:
    """Returns the requests of each class that has any, with its engines."""
    counts = split.engines or (len(engines),)
    parts, first = [], 0
    for number, count in enumerate(counts):
        own = tuple(
            each
            for each in workload.requests
            if pace_class(split.cuts_s, pace_slo_s(each.slo, each.output_tokens)) == number
        )
        if own:
            parts.append((replace(workload, requests=own), engines[first : first + count]))
        first += count
    return parts


def _fleet(baseline: Baseline, workload: Workload, engines: Sequence[InstanceType], seed: int) -> list[Settlement]:
    cores = [baseline.core(profile_of(kind), FleetSetting(seed * 1000 + i)) for i, kind in enumerate(engines)]
    return EngineFleet(baseline, cores, workload, cutoff_s=CUTOFF_S).run().settlements


def _mesh(
    workload: Workload, engines: Sequence[InstanceType], seed: int, pinned: Split | None = None
) -> list[Settlement]:
    """Runs the mesh that ships: lengths are predicted with an error, the costs of its engines are known, and so is to
    the regulator the law of their steps. `pinned` is the split that an operator pins, None for none."""
    pool = workload.requests[0].request.model
    first, *others = map(profile_of, engines)
    prompts = sum(each.request.prompt_tokens for each in workload.requests)
    ratio = prompts / sum(each.output_tokens for each in workload.requests)
    known = tuple(
        (f"e{i}", StepTime(kind.step.c0_s, kind.step.c_d_s + kind.step.c_p_s * ratio, kind.step.c_k_s))
        for i, kind in enumerate(engines)
    )
    setup = MeshSetup(
        estimator="noisy",
        costs="engine",
        pin=None if pinned is None else INITIAL_TOPOLOGY,
        split=pinned,
        pools=(PoolSetup(pool, first, 1, others=tuple((each, 1) for each in others)),),
        statera_config=StateraConfig(band=NRunConfig(steps=StepMeterConfig(known=known))),
    )
    return MeshSim(setup, first, 1, workload, seed, cutoff_s=CUTOFF_S).run().settlements

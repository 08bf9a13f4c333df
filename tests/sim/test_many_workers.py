"""Several workers of one model share what comes, whichever of them had to let a request wait first."""

from dataclasses import replace
from typing import Any, cast

from hmas.engine.core.profile import builtin_profile
from hmas.sim.processes.mesh import MeshSim
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.systems import MESHES

RATE_RPS, SECONDS, SEED = 78.0, 10.0, 101  # more than the engines serve in time
ENGINES = 8


def test_two_workers_are_given_as_much() -> None:
    profile = builtin_profile("tiny-emulated")
    workload = build(WorkloadSpec(kind="mix", duration_s=SECONDS), RATE_RPS, SEED).fitting(profile)
    setup = replace(MESHES["hmas-noisy"], workers=2)
    mesh = MeshSim(setup, profile, ENGINES, workload, SEED, cutoff_s=2.0)
    running: list[tuple[int, int]] = []

    def look() -> None:
        if 6.0 < mesh.heap.now_s < SECONDS:
            first, second = (cast(Any, worker.agent)._state for worker in mesh.workers.values())
            running.append(
                tuple(len(state.queue) + sum(e.in_flight for e in state.fleet.values()) for state in (first, second))
            )

    mesh.every(0.5, look)
    mesh.run()
    shares = [max(pair) / sum(pair) for pair in running]
    assert sum(shares) / len(shares) < 0.7

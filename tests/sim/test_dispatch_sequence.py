"""Requests without a known prompt are dispatched as they were before the mesh knew of prefixes and jobs: the digest was
recorded at the commit before, by this very run. A change that is meant to alter the order records it anew."""

from hashlib import sha256

from hmas.engine.core.profile import builtin_profile
from hmas.sim.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.sources import WorkloadSpec, build

RECORDED = "3a645bd100dc83499074147c7cd26d5fee6c318ac1d1751d3c3e7ff7e492dd99"


def test_without_chains_the_dispatch_sequence_is_the_recorded_one() -> None:
    workload = build(WorkloadSpec(kind="mix", duration_s=60.0), 14.0, 1)
    setup = MeshSetup(estimator="noisy", costs="engine", workers=2, gateways=2)
    mesh = MeshSim(setup, builtin_profile("tiny-emulated"), 4, workload, 1)
    mesh.run()
    sequence = sorted((journey.granted_s or -1.0, name) for name, journey in mesh.journeys.items())
    ends = [(name, j.engine_first_s, j.engine_last_s, j.gateway) for name, j in mesh.journeys.items()]
    assert sha256(repr((sequence, ends)).encode()).hexdigest() == RECORDED

"""Requests without a known prompt are dispatched as they were before the mesh knew of prefixes and jobs: the digest was
recorded by this very run. A change that is meant to alter the order records it anew, as the one by which requests
wait a moment for their tags, and memory is reserved for no more than the predicted quantile."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from hmas.engine.core.profile import builtin_profile
from hmas.sim.effect_log import EffectLog
from hmas.sim.experiment import load_experiment
from hmas.sim.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.sources import WorkloadSpec, build
from hmas.sim.systems import MESHES

RECORDED = "9d02bb1378ed85b45c28802cca1975569904ae88229cd08caf18dcc36246964d"


def test_without_chains_the_dispatch_sequence_is_the_recorded_one() -> None:
    workload = build(WorkloadSpec(kind="mix", duration_s=60.0), 14.0, 1)
    setup = MeshSetup(estimator="noisy", costs="engine", workers=2, gateways=2)
    mesh = MeshSim(setup, builtin_profile("tiny-emulated"), 4, workload, 1)
    mesh.run()
    sequence = sorted((journey.granted_s or -1.0, name) for name, journey in mesh.journeys.items())
    ends = [(name, j.engine_first_s, j.engine_last_s, j.gateway) for name, j in mesh.journeys.items()]
    assert sha256(repr((sequence, ends)).encode()).hexdigest() == RECORDED


# The grants of committed experiments' first workloads, cut to 12 s, with oracles where models read text.
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
GRANTS = {
    ("smoke.yaml", "hmas"): (239, "4ce0dd3bb2726bd183ceedba"),
    ("overload.yaml", "hmas-plugin"): (240, "bbb110f7019191eebc33a507"),
    ("overload.yaml", "hmas-esg"): (240, "0a29a20e94b4372f97cc72a0"),
    ("faults.yaml", "hmas"): (444, "7de9d24fd05a7f95be0eb7f2"),
}


@pytest.mark.parametrize(("file", "system"), GRANTS)
def test_committed_experiments_are_granted_as_before_jobs(file: str, system: str) -> None:
    experiment = load_experiment(EXPERIMENTS / file)
    spec = replace(experiment.workloads[0], duration_s=12.0)
    workload = build(spec, 10.0 * experiment.engines, 1).fitting(experiment.engine)
    setup = replace(MESHES[system], workers=experiment.workers, gateways=experiment.gateways, estimator="noisy")
    log, digest, count = EffectLog(keep=True), sha256(), 0
    MeshSim(setup, experiment.engine, experiment.engines, workload, 1, log=log, cutoff_s=30.0).run()
    for line in log.lines:
        if "Grant(" in line and "ToGateway(" in line:
            count += 1
            digest.update(line.replace("promised_tokens=0, ", "").encode())  # which is newer than the record
    assert (count, digest.hexdigest()[:24]) == GRANTS[file, system]

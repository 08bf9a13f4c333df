"""Requests without a known prompt are dispatched as they were before the mesh knew of prefixes and jobs: the digest was
recorded by this very run. A change that is meant to alter the order records it anew, as the ones by which the
prefill that may be pending follows the TPOT budgets of what runs, small requests may fill the memory's margin, and
tenants have length bounds of their own."""

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from hmas.engine.core.profile import builtin_profile
from hmas.sim.effect_log import EffectLog
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas_lab.sim.experiment import load_experiment
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.systems import MESHES

RECORDED = "5defe85a47b5e38bc64ad54a7e2f521504cf9ddc0891352efa2b9f3c4fc7242b"


def test_without_chains_the_dispatch_sequence_is_the_recorded_one() -> None:
    workload = build(WorkloadSpec(kind="mix", duration_s=60.0), 14.0, 1)
    setup = MeshSetup(estimator="noisy", costs="engine", workers=2, gateways=2)
    mesh = MeshSim(setup, builtin_profile("tiny-emulated"), 4, workload, 1)
    mesh.run()
    sequence = sorted((journey.granted_s or -1.0, name) for name, journey in mesh.journeys.items())
    ends = [(name, j.engine_first_s, j.engine_last_s, j.gateway) for name, j in mesh.journeys.items()]
    assert sha256(repr((sequence, ends)).encode()).hexdigest() == RECORDED


# The grants of committed experiments' first workloads, cut to 12 s, with oracles where models read text. Numbers
# count to nine digits, because the last bit of NumPy's exponentials, in every cost, depends on the processor.
NUMBER = re.compile(r"\d+\.\d+(e-\d+)?")
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
GRANTS = {
    ("smoke.yaml", "hmas"): (239, "74c9bed6017f455183b00600"),
    ("overload.yaml", "hmas-plugin"): (98, "e3eb65dcfbf6822d21371ece"),
    ("overload.yaml", "hmas-esg"): (98, "4198e18a3949e6c0312c887e"),
    ("faults.yaml", "hmas"): (444, "096330557e4a9fdf7993daaa"),
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
            line = line.replace("promised_tokens=0, ", "")  # which is newer than the record
            digest.update(NUMBER.sub(lambda number: f"{float(number[0]):.9g}", line).encode())
    assert (count, digest.hexdigest()[:24]) == GRANTS[file, system]

"""Runs one baseline on one workload."""

from hmas.engine.core.profile import EngineProfile
from hmas.sim.baselines.fleet import EngineFleet
from hmas.sim.baselines.systems import BASELINES, FleetSetting
from hmas.sim.result import SimResult
from hmas.sim.workload import Workload


def run_baseline(name: str, workload: Workload, profile: EngineProfile, engines: int, seed: int) -> SimResult:
    """Runs the baseline `name` on `engines` engines of one profile. Raises KeyError if there is no such baseline."""
    baseline = BASELINES[name]
    cores = [baseline.core(profile, FleetSetting(seed * 1000 + i)) for i in range(engines)]
    return EngineFleet(baseline, cores, workload).run()

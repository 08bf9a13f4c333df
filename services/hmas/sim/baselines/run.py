"""Runs one baseline on one workload."""

from hmas.engine.core.profile import EngineProfile
from hmas.prediction.agent.backend import CostModel
from hmas.sim.baselines.fleet import EngineFleet
from hmas.sim.baselines.systems import BASELINES, FleetSetting
from hmas.sim.result import SimResult
from hmas.sim.workload import Workload


def run_baseline(
    name: str, workload: Workload, profile: EngineProfile, engines: int, seed: int, costs: CostModel | None = None
) -> SimResult:
    """Runs the baseline `name` on `engines` engines of one profile; `costs` are the predictions of one that needs them.
    Raises KeyError if there is no such baseline, and ValueError if it needs `costs` and gets none."""
    baseline = BASELINES[name]
    cores = [baseline.core(profile, FleetSetting(seed * 1000 + i)) for i in range(engines)]
    return EngineFleet(baseline, cores, workload, costs=costs).run()

"""Requests that state nothing but a TTLT, on engines of different speed: each runs where its pace is kept."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from hmas.contracts.request import Slo, TaskType
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import EngineProfile
from hmas.engine.named import named_profile
from hmas.laws.scoring import Settlement, is_ok
from hmas.sim.processes.fleet import EngineFleet, FleetSetting
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import POOL, MeshSetup, PoolSetup
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim.baselines.systems import BASELINES
from tests.builders.requests import client_request

# Qwen3-32B fp8 on 1, 2 and 4 H100, fitted to aiconfigurator's measurements as the profile of one card that ships.
ONE = named_profile("qwen3-32b-fp8-h100x1")
TWO = StepCostModel(0.009115, 4.174e-5, 4.331e-5, 2.052e-8)
FOUR = StepCostModel(0.006614, 2.487e-5, 5.529e-5, 5.562e-9)
STEP_S = ONE.cost.step_s(0, 1, 800, 0.0)  # with one sequence on one card
SECONDS, JUDGED_S = 80.0, 40.0  # of a run, and from when on: a layout is chosen at 20 s
# Lengths and SLOs of MaaSO's trace 4, half of each: tokens, and a token's time in steps of one card.
STRICT, LAX = ((300, 500), (0.8, 1.0)), ((600, 1000), (1.2, 1.5))


def engine(cost: StepCostModel, blocks: int) -> EngineProfile:
    limits = replace(ONE.limits, max_num_seqs=256, max_num_batched_tokens=1024, num_gpu_blocks=blocks)
    return replace(ONE, cost=cost, limits=limits)


def offered(rate_rps: float, seed: int) -> Workload:
    rng = np.random.default_rng([seed, 7])
    requests: list[OfferedRequest] = []
    now_s = 0.0
    while (now_s := now_s + float(rng.exponential(1.0 / rate_rps))) < SECONDS:
        tokens, times = STRICT if rng.random() < 0.5 else LAX
        length, time = int(rng.integers(tokens[0], tokens[1] + 1)), float(rng.uniform(*times))
        slo = Slo(6.0, 0.1, time * STEP_S * length, whole=True)
        request = client_request(
            f"r{len(requests)}", model=POOL, prompt_tokens=int(np.clip(rng.lognormal(np.log(400), 0.8), 8, 8000)),
            max_tokens=None, stream=True, slo=slo, slo_stated=True, arrival_s=now_s,
        )  # fmt: skip
        requests.append(OfferedRequest(request=request, output_tokens=length, slo=slo, task=TaskType.QA))
    return Workload("ttlt", tuple(requests), SECONDS)


def kept(settlements: Sequence[Settlement]) -> float:
    return fmean(is_ok(each) for each in settlements if each.offered_s >= JUDGED_S)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_what_states_a_ttlt_alone_runs_where_its_pace_is_kept(seed: int) -> None:
    fast, slow = engine(FOUR, 117_778), engine(TWO, 51_021)
    workload = offered(20.0, seed)
    pools = (PoolSetup(POOL, fast, 1, others=((slow, 2),)),)
    mesh = MeshSim(MeshSetup(estimator="noisy", costs="engine", pools=pools), fast, 3, workload, seed, cutoff_s=60.0)
    run = mesh.run()
    first = BASELINES["vllm"]
    cores = [first.core(profile, FleetSetting(seed + i)) for i, profile in enumerate((fast, slow, slow))]
    plain = EngineFleet(first, cores, workload).run()
    print(f"on time {kept(run.settlements):.3f}, first come first served {kept(plain.settlements):.3f}")
    assert run.run.layouts, "no class of engines was formed"
    assert kept(run.settlements) >= 0.95
    assert kept(run.settlements) >= kept(plain.settlements) + 0.15

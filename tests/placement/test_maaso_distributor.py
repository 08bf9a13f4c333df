"""MaaSO's distributor: the shortest queue of the engines that keep the SLO at their worst, or a refusal."""

from dataclasses import replace

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import EngineProfile, builtin_profile
from hmas.sim.processes.fleet import Baseline, EngineFleet, EngineLoad, FleetSetting
from hmas.sim.vllm import VLLM
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.placement.distributor import MaasoRouter
from tests.builders.requests import client_request


def profile(step_s: float, limit: int = 2) -> EngineProfile:
    """An engine whose steps take `step_s` and 0.1 s for each sequence."""
    made = builtin_profile("steady").with_limits(max_num_seqs=limit)
    return replace(made, cost=StepCostModel(step_s, 0.0, 0.1, 0.0))


def offered(slo: Slo, number: int = 0) -> OfferedRequest:
    request = client_request(f"r{number}", model="a", arrival_s=0.0, slo=slo)
    return OfferedRequest(request=request, output_tokens=10, slo=slo, task=TaskType.QA)


ONE = offered(Slo(100.0, 1.2))
ROUTER = MaasoRouter([ONE])


def test_the_shortest_queue_of_the_able_takes_it() -> None:
    slow, fast = EngineLoad(profile(1.1), outstanding=0), EngineLoad(profile(1.0), outstanding=2)
    faster = EngineLoad(profile(0.5), outstanding=1)
    assert ROUTER.choose(ONE, [slow, fast, faster]) is faster
    assert ROUTER.choose(offered(Slo(100.0, 1.3)), [slow, fast, faster]) is slow
    assert ROUTER.choose(ONE, [slow]) is None


@pytest.mark.parametrize(("outstanding", "wait_s"), [(1, 0.0), (2, 6.0), (3, 12.0)])
def test_a_request_beyond_the_limit_waits_for_its_share(outstanding: int, wait_s: float) -> None:
    load = EngineLoad(profile(1.0), outstanding=outstanding)  # two at once, 12 s each
    assert ROUTER.choose(offered(Slo(wait_s, 1.2)), [load]) is load
    if wait_s:
        assert ROUTER.choose(offered(Slo(wait_s - 0.01, 1.2)), [load]) is None
    last_s = wait_s + 12.0
    assert ROUTER.choose(offered(Slo(0.0, 0.0, last_s, whole=True)), [load]) is load
    assert ROUTER.choose(offered(Slo(0.0, 0.0, last_s - 0.01, whole=True)), [load]) is None


def test_what_the_router_refuses_is_not_served_and_keeps_nobody_waiting() -> None:
    maaso = Baseline(name="maaso", source="", core=VLLM.core, router=lambda _: ROUTER)
    cores = [maaso.core(profile(1.0), FleetSetting(1))]
    requests = (offered(Slo(100.0, 1.0), 0), offered(Slo(100.0, 9.0), 1))
    run = EngineFleet(maaso, cores, Workload("two", requests, 10.0)).run()
    assert [each.outcome for each in run.settlements] == [Outcome.ENGINE_REFUSED, Outcome.FINISHED]
    assert run.run.ended_s < 20.0

"""One plan under each way to serve it."""

from collections.abc import Sequence

import pytest

from hmas.contracts.control import Split
from hmas.contracts.outcome import Outcome
from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.step_cost import StepCostModel
from hmas.laws.scoring import is_ok
from hmas.sim.workload import Workload
from hmas_lab.placement.serving import Way, class_parts, served
from hmas_lab.placement.traces import PoolTraffic, traffic_workload


def kind(name: str, step_s: float, limit: int = 64) -> InstanceType:
    return InstanceType(
        name=name, model="a", hardware="h", gpus=1, step=StepCostModel(step_s, 1e-5, 1e-5, 0.0), kv_tokens=200_000,
        max_num_seqs=limit, max_num_batched_tokens=1024,
    )  # fmt: skip


FAST, SLOW = kind("fast", 0.008), kind("slow", 0.011)
ENGINES = [FAST, SLOW, SLOW]
SPLIT = Split((0.01,), (1, 2))


@pytest.fixture(scope="module")
def workload() -> Workload:
    traffic = PoolTraffic(pool="a", trace="t4", rate_rps=4.0, alone_s=0.01)
    return traffic_workload((traffic,), 15.0, 1)


def names(engines: Sequence[InstanceType]) -> list[str]:
    return [each.name for each in engines]


def test_classes_have_their_requests_and_engines(workload: Workload) -> None:
    (strict, first), (lax, others) = class_parts(workload, ENGINES, SPLIT)
    assert (names(first), names(others)) == (["fast"], ["slow", "slow"])
    assert all(each.slo.tpot_s <= 0.01 for each in strict.requests)
    assert all(each.slo.tpot_s > 0.01 for each in lax.requests)
    assert len(strict.requests) + len(lax.requests) == len(workload.requests)
    assert class_parts(workload, ENGINES, Split()) == [(workload, ENGINES)]
    [(part, own)] = class_parts(workload, ENGINES, Split((1.0,), (2, 1)))
    assert (part, names(own)) == (workload, ["fast", "slow"])


@pytest.mark.parametrize("way", Way)
def test_every_request_is_settled_once(workload: Workload, way: Way) -> None:
    found = served(way, workload, ENGINES, SPLIT, 1)
    assert sorted(each.request_id for each in found) == sorted(each.id for each in workload.requests)
    assert {each.outcome for each in found} <= {Outcome.FINISHED, Outcome.ENGINE_REFUSED}


def test_strict_requests_are_on_time_where_classes_keep_them_on_the_fast_engine(workload: Workload) -> None:
    shares = {way: sum(map(is_ok, served(way, workload, ENGINES, SPLIT, 1))) / len(workload.requests) for way in Way}
    assert shares[Way.CLASSES] > shares[Way.FCFS] + 0.1
    assert shares[Way.DISTRIBUTOR] == pytest.approx(shares[Way.CLASSES], abs=0.1)


def test_the_distributor_refuses_what_full_engines_could_not_keep(workload: Workload) -> None:
    # With 1000 sequences a token takes 18 ms and more, which is too long for every request.
    many = [kind("many", 0.008, 1000)] * 3
    found = served(Way.DISTRIBUTOR, workload, many, Split(), 1)
    assert {each.outcome for each in found} == {Outcome.ENGINE_REFUSED}

"""Tables of single tenants: what one tenant's answers do leaves the bounds of the others as they are."""

from dataclasses import replace

import pytest

from hmas.contracts.control import Fence
from hmas.statera.agent.config import FenceConfig
from hmas.statera.agent.fence import FenceCalibration
from tests.statera.test_fence import FINISHED, RUNNING, STEADY


def settle(calibration: FenceCalibration, tenant: str, count: int, *, low: int = 0, predictor: str = "v1") -> None:
    """Errors of `low` + 1 to 100 hundredths, each as often."""
    for i in range(count):
        row = replace(FINISHED, tenant=tenant, predictor=predictor, output_tokens=low + 1 + i * 37 % 100)
        calibration.finished(1.0, "w", row)


def factors(fence: Fence) -> dict[str, float]:
    return {table.tenant: table.buckets[0].factor for table in fence.tables}


def test_who_misleads_raises_his_own_bounds_alone() -> None:
    calibration = FenceCalibration(STEADY)
    settle(calibration, "honest", 200)
    settle(calibration, "liar", 200, low=2000)
    fence = calibration.fence(1.0)
    assert fence.tables[-1].tenant == ""  # which a worker that knows no tenants goes by
    found = factors(fence)
    assert found["honest"] == pytest.approx(0.91, abs=0.02)
    assert found["liar"] > 20.0
    assert found[""] > 20.0  # who is new is not known to be honest


def test_one_tenant_alone_has_the_table_of_all() -> None:
    calibration = FenceCalibration(STEADY)
    settle(calibration, "a", 200)
    settle(calibration, "b", 200, predictor="v2")
    settle(calibration, "", 200)
    assert set(factors(calibration.fence(1.0))) == {""}


def test_a_tenant_of_few_answers_has_no_table() -> None:
    calibration = FenceCalibration(STEADY)
    settle(calibration, "a", 200)
    settle(calibration, "b", STEADY.min_samples - 1)
    assert set(factors(calibration.fence(1.0))) == {"", "a"}
    settle(calibration, "b", 1)
    assert set(factors(calibration.fence(3.0))) == {"", "a", "b"}


def test_what_a_tenant_has_running_counts_in_its_table() -> None:
    calibration = FenceCalibration(STEADY)
    for tenant in ("a", "b"):
        settle(calibration, tenant, 100)
    calibration.running(1.0, "w", [replace(RUNNING, request_id=str(i), tenant="b") for i in range(100)])
    found = factors(calibration.fence(1.0))
    assert found["a"] == pytest.approx(0.91, abs=0.02)
    assert found["b"] > found["a"]
    calibration.forget_worker("w")
    assert factors(calibration.fence(3.0))["b"] == pytest.approx(0.91, abs=0.02)


def test_tables_are_bounded_and_made_in_turn() -> None:
    calibration = FenceCalibration(replace(STEADY, max_tenants=6, tenants_at_once=2))
    for number in range(8):
        settle(calibration, f"t{number}", 40)
    made = [set(factors(calibration.fence(at_s))) - {""} for at_s in (1.0, 2.0, 3.0)]
    assert [len(names) for names in made] == [2, 4, 6]
    assert made[0] < made[1] < made[2]
    settle(calibration, "t7", 100, low=2000)
    found = [factors(calibration.fence(at_s))["t7"] for at_s in (4.0, 5.0, 6.0)]
    assert (found[1] < 2.0, found[2] > 20.0) == (True, True)  # its turn is the last one


def test_one_off_tenants_leave_the_busy_ones_their_tables() -> None:
    calibration = FenceCalibration(FenceConfig(aci_gain=0.0, max_tenants=3))
    for number in range(200):
        settle(calibration, "a", 1)
        settle(calibration, "b", 1)
        settle(calibration, f"once-{number}", 1)
    assert set(factors(calibration.fence(1.0))) == {"", "a", "b"}

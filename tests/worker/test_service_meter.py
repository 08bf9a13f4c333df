"""How fast a backlog is served, and how long a refused client is told to wait."""

from math import exp

import pytest

from hmas.worker.agent.config import MeterConfig
from hmas.worker.agent.estimates.meter import ServiceMeter


def test_meter_measures_only_under_backlog() -> None:
    meter = ServiceMeter(MeterConfig())
    assert meter.wait_s(10.0, 4.0) == 2.5
    meter.close(0.0, backlogged=True)
    meter.add(6.0)
    meter.close(2.0, backlogged=True)
    assert meter.wait_s(30.0, 4.0) == 10.0
    meter.add(0.1)
    meter.close(4.0, backlogged=False)
    assert meter.wait_s(30.0, 4.0) == 10.0


def test_the_speed_is_the_work_done_while_requests_waited() -> None:
    meter = ServiceMeter(MeterConfig(window_s=10.0, min_retry_s=1.0, max_retry_s=20.0))
    assert (meter.speed(4.0), meter.wait_s(8.0, 4.0), meter.wait_s(8.0, 0.0)) == (4.0, 2.0, 0.0)
    meter.add(3.0)
    meter.close(5.0, backlogged=True)  # since when is not known
    meter.add(6.0)
    meter.close(7.0, backlogged=True)
    assert meter.speed(4.0) == 3.0
    meter.add(50.0)
    meter.close(8.0, backlogged=False)
    meter.add(5.0)
    meter.close(9.0, backlogged=True)
    expected = 3.0 + (1.0 - exp(-0.1)) * (5.0 - 3.0)
    assert meter.speed(4.0) == pytest.approx(expected)
    meter.add(9.0)
    meter.close(9.0, backlogged=True)  # no time has passed
    assert meter.speed(4.0) == pytest.approx(expected)
    assert meter.wait_s(6.0, 4.0) == pytest.approx(6.0 / expected)
    assert [meter.retry_after_s(wait_s) for wait_s in (0.0, 3.0, 50.0)] == [1.0, 3.0, 20.0]

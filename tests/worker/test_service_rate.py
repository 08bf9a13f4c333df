"""The rate of the engines, beside its definition."""

from math import exp

import pytest

from hmas.worker.agent.order.service_rate import ServiceRate, ServiceRateConfig


def test_the_rate_of_the_engines_is_the_work_done_while_requests_waited() -> None:
    config = ServiceRateConfig(window_s=15.0, sample_s=0.5, cold_rate=0.8, cold_s=2.0)
    rate = ServiceRate(config)
    rate.engines, rate.most = 2, 3.0
    assert rate.value == 1.6
    rate.add(7.0)
    rate.observe(10.0)  # what came before the first sample counts for none
    rate.add(1.0)
    rate.observe(10.25)  # not over
    rate.add(1.0)
    rate.observe(10.5)
    expected = 1.6 + max(1.0 - exp(-0.5 / 15.0), 0.5 / 2.5) * (2.0 / 0.5 - 1.6)
    assert rate.value == pytest.approx(expected)
    rate.add(100.0)
    rate.ran_dry()
    rate.observe(11.5)
    assert rate.value == pytest.approx(expected), "a sample in which the queue was empty shows nothing"
    rate.observe(12.5)
    expected += max(1.0 - exp(-1.0 / 15.0), 1.0 / 3.5) * (0.0 - expected)
    assert rate.value == pytest.approx(expected)
    rate.add(100.0)
    rate.observe(13.5)
    assert rate.value == 3.0

"""Which TPOT SLO an engine's step is held to."""

from math import inf

import pytest

from hmas.worker.agent.engines.step_target import StepBase, worthy_slo_s

BASE_S = 0.04


def test_without_a_request_there_is_nothing_to_keep() -> None:
    assert worthy_slo_s([], BASE_S) == inf
    assert worthy_slo_s([0.03, 0.04], BASE_S) == inf  # an idle engine misses both


def test_a_few_tight_slos_do_not_throttle_the_rest() -> None:
    assert worthy_slo_s([0.05] + [0.1] * 9, BASE_S) == 0.1


def test_few_lax_slos_do_not_make_the_rest_late() -> None:
    assert worthy_slo_s([0.1] * 9 + [0.2], BASE_S) == 0.1


def test_between_two_halves_the_one_with_more_on_time_is_kept() -> None:
    """At 0.08 all are kept at a work of 1 - 0.04 / 0.08 = 0.5 per second; at 0.2 half of them at 0.8; at 0.05 the work
    would be 0.2 for all, less than half of them at 0.8."""
    assert worthy_slo_s([0.08] * 5 + [0.2] * 5, BASE_S) == 0.08
    assert worthy_slo_s([0.05] * 5 + [0.2] * 5, BASE_S) == 0.2


@pytest.mark.parametrize("loads", [range(1, 100), [80] * 50 + [1, 2, 5] + [80] * 50])
def test_the_base_is_that_of_an_idle_engine_under_any_load(loads: list[int]) -> None:
    base = StepBase(600.0)
    assert base.seconds == 0.0
    for i, running in enumerate(loads):
        base.add(i * 0.1, running, 0.04 + 0.0005 * running)
    assert base.seconds == pytest.approx(0.04)


def test_a_base_that_is_not_to_be_told_is_taken_for_the_step() -> None:
    base = StepBase(600.0)
    for i in range(50):
        base.add(i * 0.1, 80, 0.08)
    assert base.seconds == pytest.approx(0.08)


def test_an_idle_engine_and_old_steps_say_nothing() -> None:
    base = StepBase(10.0)
    base.add(0.0, 0, 0.5)
    assert base.seconds == 0.0
    for i in range(200):
        base.add(i * 0.1, 1 + i % 20, 0.1)
    for i in range(200):
        base.add(100.0 + i * 0.1, 1 + i % 20, 0.05)
    assert base.seconds == pytest.approx(0.05, rel=0.01)

"""How the level of the fence learns from hits and misses."""

from dataclasses import replace

import pytest

from hmas.statera.agent.config import FenceConfig
from hmas.statera.agent.conformal import AdaptiveLevel
from hmas.statera.agent.fence import VersionCohort
from tests.statera.test_fence import FINISHED, RUNNING


def learning(**changes: float) -> VersionCohort:
    cohort = VersionCohort(replace(FenceConfig(aci_gain=0.1, aci_loop=1000.0), **changes))  # type: ignore[arg-type]
    for number in range(40):
        cohort.add("w", 0.0, replace(FINISHED, request_id=f"old{number}", output_tokens=50))
    return cohort


def levels(cohort: VersionCohort) -> list[float]:
    return [level.epsilon for level in cohort._levels]


def test_the_level_learns_nothing_before_there_are_factors() -> None:
    cohort = learning()
    assert levels(cohort) == [0.1] * 5
    cohort.buckets()
    cohort.add("w", 0.0, replace(FINISHED, output_tokens=50))
    assert levels(cohort)[0] == pytest.approx(0.11)
    few = VersionCohort(FenceConfig())
    assert few.buckets() == ()
    few.add("w", 0.0, FINISHED)
    assert levels(few) == [0.1] * 5


def test_the_level_learns_in_the_bucket_of_the_prompt_and_slower_the_more_run_there() -> None:
    cohort = learning(aci_gain=1.0, aci_loop=0.6)
    cohort.buckets()
    short, long = replace(RUNNING, prompt_tokens=128), replace(RUNNING, prompt_tokens=129)
    cohort.see_running("v", 1.0, [short, short, long])
    cohort.see_running("w", 1.0, [short])
    cohort.add("w", 0.0, replace(FINISHED, prompt_tokens=100, output_tokens=90, upper_output_tokens=90.0))
    assert levels(cohort)[:2] == pytest.approx([0.1 + 0.6 / 3 * 0.1, 0.1])
    cohort.forget_worker("v")
    cohort.add("w", 0.0, replace(FINISHED, prompt_tokens=100, output_tokens=90, upper_output_tokens=90.0))
    assert levels(cohort)[0] == pytest.approx(0.1 + 0.6 / 3 * 0.1 + 0.6 * 0.1)
    cohort.add("w", 0.0, replace(FINISHED, prompt_tokens=129, output_tokens=91, upper_output_tokens=90.0))
    assert levels(cohort)[1] == pytest.approx(0.01)


def test_one_that_still_runs_counts_as_a_miss_above_its_bound_and_once() -> None:
    cohort = learning()
    cohort.buckets()
    at = replace(RUNNING, output_tokens=800, upper_output_tokens=800.0)
    cohort.see_running("w", 1.0, [at])
    assert levels(cohort)[0] == 0.1  # it has just reached it
    over = replace(at, output_tokens=801)
    cohort.see_running("w", 2.0, [over])
    cohort.see_running("w", 3.0, [over])
    assert levels(cohort)[0] == pytest.approx(0.01)
    cohort.forget_worker("w")
    cohort.see_running("w", 4.0, [replace(over, request_id="new")])
    assert levels(cohort)[0] == pytest.approx(0.01)


def test_one_that_was_cut_off_above_its_bound_is_a_miss() -> None:
    cohort = learning()
    cohort.buckets()
    cohort.add("w", 0.0, replace(FINISHED, output_tokens=11, upper_output_tokens=10.0, censored=True))
    assert levels(cohort)[0] == pytest.approx(0.1 - 0.09)


def test_the_level_moves_by_its_gain_and_by_no_more_than_its_loop_over_what_runs() -> None:
    for running, gain in ((0, 0.1), (1, 0.1), (5, 0.1), (6, 0.5 / 6), (50, 0.01)):
        level = AdaptiveLevel(0.2, 0.1, 0.0, 1.0, 0.5)
        level.update(True, running)
        assert level.epsilon == pytest.approx(0.2 - gain * 0.8)
        level.update(False, running)
        assert level.epsilon == pytest.approx(0.2 - gain * 0.8 + gain * 0.2)

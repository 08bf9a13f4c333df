"""Every move of N_run beside its formula, and the boundaries of each condition."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import EngineControl, StepTime
from hmas.statera.agent.band import Band, NRunController
from hmas.statera.agent.config import NRunConfig, NRunRule
from tests.builders.telemetry import engine_sample

BAND = Band(0.85, 0.95)
CONFIG = NRunConfig(rule=NRunRule.BAND)
N_MAX = 100
HIGH = engine_sample(running=90, utilisation=1.2, b_token=91, b_saturated=-1)  # above the band, at the lowest budget
LOW = engine_sample(running=50, utilisation=0.2, b_token=101, b_saturated=1)


def started(n_run: int = N_MAX, config: NRunConfig = CONFIG) -> NRunController:
    """A loop whose first period begins at 0."""
    controller = NRunController(config, N_MAX)
    controller.adopt(n_run)
    assert not controller.move(0.0, 0, 0)
    return controller


def window(controller: NRunController, samples: Any, in_flight: int = 50, queued: int = 10, at_s: float = 1.0) -> int:
    """N_run after a window of these samples, five where only one is given."""
    for sample in samples if isinstance(samples, list) else [samples] * 5:
        controller.observe(sample, BAND)
    controller.move(at_s, in_flight, queued)
    return controller.n_run


@pytest.mark.parametrize(("utilisation", "error"), [(0.5, -0.35), (0.85, 0.0), (0.9, 0.0), (0.95, 0.0), (1.25, 0.3)])
def test_the_error_is_the_distance_from_the_band(utilisation: float, error: float) -> None:
    assert BAND.error(utilisation) == pytest.approx(error)


def test_n_run_begins_at_the_engines_own_limit_within_bounds() -> None:
    bounds = replace(CONFIG, n_min=4, n_most=32)
    assert [NRunController(bounds, n_max).n_run for n_max in (2, 4, 20, 32, 99)] == [4, 4, 20, 32, 32]
    controller = NRunController(bounds, 20)
    for adopted, expected in ((3, 4), (4, 4), (7, 7), (20, 20), (21, 20)):
        controller.adopt(adopted)
        assert controller.n_run == expected


def test_a_cut_is_a_share_of_the_relative_error_from_the_most_that_ran() -> None:
    """The error is 0.25 of 1.2, of which half is corrected."""
    samples = [replace(HIGH, running=running) for running in (80, 90, 70, 60, 85)]
    assert window(started(), samples, 100) == int(90 * (1 - 0.5 * 0.25 / 1.2))
    assert window(started(85), samples, 85) == int(85 * (1 - 0.5 * 0.25 / 1.2))
    mixed = [replace(HIGH, utilisation=u) for u in (0.9, 0.9, 1.0, 1.2, 1.4)]  # errors 0, 0, 0.05, 0.25, 0.45
    assert window(started(), mixed, 100) == int(90 * (1 - 0.5 * 0.15 / 1.08))
    assert window(started(), replace(HIGH, utilisation=9.0), 100) == int(90 * (1 - CONFIG.slew))


def test_a_cut_waits_while_more_are_in_flight_than_may_be() -> None:
    assert window(started(), HIGH, 100) < 100
    assert window(started(), HIGH, 101) == 100


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"b_saturated": -1, "b_token": 101}, True),
        ({"b_saturated": 0, "b_token": 91}, True),
        ({"b_saturated": 0, "b_token": 92}, False),
        ({"b_saturated": 1, "b_token": 101}, False),
    ],
)
def test_n_run_is_cut_where_the_inner_loop_is_at_its_lowest(changes: dict[str, Any], moved: bool) -> None:
    assert (window(started(), replace(HIGH, **changes)) < N_MAX) is moved
    once = [HIGH] * 4 + [replace(HIGH, b_saturated=0, b_token=99)]
    assert window(started(), once) == N_MAX  # throughout the window


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"b_saturated": 1, "b_token": 60}, True),
        ({"b_saturated": 0, "b_token": 101}, True),
        ({"b_saturated": 0, "b_token": 100}, False),
        ({"b_saturated": -1, "b_token": 51}, False),
    ],
)
def test_n_run_is_raised_where_the_inner_loop_is_at_its_highest(changes: dict[str, Any], moved: bool) -> None:
    assert (window(started(50), replace(LOW, **changes)) > 50) is moved
    once = [LOW] * 4 + [replace(LOW, b_saturated=0, b_token=99)]
    assert window(started(50), once) == 50


def test_a_rise_is_of_at_least_one_and_at_most_the_slew() -> None:
    assert window(started(50), LOW) == 60
    assert window(started(50), replace(LOW, utilisation=0.84)) == 51
    assert window(started(50), replace(LOW, utilisation=0.75)) == int(50 * (1 + 0.5 * 0.1 / 0.75))
    assert window(started(95), LOW, 95) == N_MAX
    assert window(started(50), replace(LOW, utilisation=0.9)) == 50  # inside the band


def test_an_engine_that_does_nothing_lets_n_run_rise_by_the_slew() -> None:
    assert window(started(50), replace(LOW, utilisation=0.0)) == 60


def test_a_rise_needs_n_run_to_be_what_limits() -> None:
    assert window(started(50), LOW, in_flight=49) == 60
    assert window(started(50), LOW, in_flight=48) == 50


def test_without_a_queue_n_run_recovers_slowly() -> None:
    assert window(started(50), LOW, in_flight=0, queued=0) == 52
    assert window(started(99), LOW, in_flight=0, queued=0) == N_MAX


@pytest.mark.parametrize("rule", [NRunRule.ENGINE, NRunRule.STEP])
def test_other_rules_raise_n_run_whatever_the_utilisation(rule: NRunRule) -> None:
    config = replace(CONFIG, rule=rule)
    assert window(started(50, config), HIGH) == 60
    assert window(started(50, config), HIGH, in_flight=48) == 50
    assert window(started(50, config), HIGH, queued=0) == 52


def test_a_move_needs_its_period_and_enough_samples_and_says_whether_it_moved() -> None:
    controller = started(50)
    for _ in range(5):
        controller.observe(LOW, BAND)
    assert not controller.move(0.999, 50, 10)
    assert controller.move(1.0, 50, 10)
    for _ in range(4):
        controller.observe(LOW, BAND)
    assert not controller.move(2.5, 60, 10)  # one sample is missing
    controller.observe(LOW, BAND)
    assert controller.move(2.6, 60, 10)
    for _ in range(5):
        controller.observe(replace(LOW, utilisation=0.9), BAND)
    assert not controller.move(3.599, 60, 10)
    assert not controller.move(3.7, 60, 10)  # it was due, and nothing is to be done
    for _ in range(5):
        controller.observe(LOW, BAND)
    assert not controller.move(4.6, 60, 10)
    assert controller.n_run == 72


# --- limits that the engine shows


def held(running: int = 30, waiting: int = 5, **changes: Any) -> Any:
    """An engine in which requests wait though it is not busy with prompts, in the middle of its band."""
    return engine_sample(running=running, waiting=waiting, utilisation=0.9, b_token=60, **changes)


@pytest.mark.parametrize(
    ("running", "waiting", "limit"),
    [
        (30, 5, 31),
        (30, 2, 31),
        (30, 1, None),
        (60, 4, 63),
        (60, 3, None),
        (1, 2, 2),
        (0, 9, None),
        (39, 2, 40),
        (40, 3, 42),
    ],
)
def test_a_limit_shows_where_more_wait_than_refill_a_batch(running: int, waiting: int, limit: int | None) -> None:
    assert window(started(), held(running, waiting), 99) == (N_MAX if limit is None else limit)


def test_a_limit_is_never_above_n_run() -> None:
    assert window(started(20), held(), 35) == 20


def test_a_limit_shows_throughout_a_window_in_which_the_running_did_not_grow() -> None:
    steady = [held(30), held(31), held(31), held(30), held(31)]
    assert window(started(), steady, 99) == 32
    growing = [held(29), held(30), held(31), held(31), held(31)]
    assert window(started(), growing, 99) == N_MAX
    lull = [held()] * 4 + [held(waiting=1)]
    assert window(started(), lull, 99) == N_MAX


def test_an_engine_short_of_memory_shows_no_limit() -> None:
    assert window(started(), held(kv_usage=0.849), 99) == 31
    assert window(started(), held(kv_usage=0.85), 99) == N_MAX
    assert window(started(), held(kv_usage=0.99, kv_capacity_tokens=0), 99) == 31
    assert window(started(), held(kv_usage=0.99, kv_capacity_tokens=1), 99) == N_MAX


def test_an_engine_at_half_its_highest_prefill_rate_shows_no_limit() -> None:
    for rate, expected in ((500.0, N_MAX), (499.0, 31), (0.0, 31)):
        controller = started()
        assert window(controller, held(prefill_tokens_per_s=1000.0), 99) == N_MAX
        assert window(controller, held(prefill_tokens_per_s=rate), 99, at_s=2.0) == expected
    mean = [held(prefill_tokens_per_s=rate) for rate in (0.0, 0.0, 0.0, 500.0, 1998.0)]
    controller = started()
    window(controller, held(prefill_tokens_per_s=1000.0), 99)
    assert window(controller, mean, 99, at_s=2.0) == 31  # 499.6 in the mean


def limited(at_s: float = 1.0, config: NRunConfig = CONFIG) -> NRunController:
    """A loop at 31, because the engine showed that limit at `at_s`."""
    controller = started(config=config)
    assert window(controller, held(), 99, at_s=at_s) == 31
    return controller


def test_above_a_shown_limit_n_run_is_probed() -> None:
    controller = limited()
    assert window(controller, LOW, 31, at_s=2.0) == 32  # 31 and a twentieth of it
    assert window(controller, LOW, 32, at_s=3.0) == 34
    below = limited()
    below.adopt(20)
    assert window(below, LOW, 20, at_s=2.0) == 24  # below the limit it rises by the slew
    assert window(limited(), replace(LOW, utilisation=0.84), 31, at_s=2.0) == 32


def test_without_a_queue_n_run_recovers_to_a_shown_limit_and_no_further() -> None:
    controller = limited()
    controller.adopt(30)
    assert window(controller, LOW, 0, 0, at_s=2.0) == 31
    assert window(controller, LOW, 0, 0, at_s=3.0) == 31
    controller.adopt(40)
    assert window(controller, LOW, 0, 0, at_s=4.0) == 40


@pytest.mark.parametrize(("after_s", "remembered"), [(300.0, True), (300.1, False)])
def test_a_shown_limit_is_forgotten_in_time(after_s: float, remembered: bool) -> None:
    controller = limited()
    assert window(controller, LOW, 31, at_s=1.0 + after_s) == (32 if remembered else 37)


def test_hold_drops_the_window_that_has_begun() -> None:
    controller = started(50)
    for _ in range(5):
        controller.observe(replace(HIGH, running=99), BAND)
    controller.hold()
    assert window(controller, LOW) == 60


# --- the tuple


@pytest.mark.parametrize(("running", "bounds"), [(0, (3, 103)), (50, (53, 103)), (100, (103, 103)), (400, (103, 103))])
def test_the_budget_has_room_for_what_runs_and_a_chunk(running: int, bounds: tuple[int, int]) -> None:
    assert NRunController(replace(CONFIG, min_prefill_chunk=3), N_MAX).budget_bounds(running) == bounds


@pytest.mark.parametrize("rule", NRunRule)
def test_the_controls_of_an_engine(rule: NRunRule) -> None:
    step = StepTime(0.01, 1e-4, 1e-7)
    controller = NRunController(replace(CONFIG, rule=rule), N_MAX)
    controller.adopt(70)
    for told, b_token in ((0, 101), (1, 51), (50, 51), (51, 51), (80, 80), (101, 101), (500, 101)):
        found = controller.control(engine_sample(engine="x", running=50, b_token=told), BAND, step)
        assert found == EngineControl(
            engine="x", n_run=70, b_token=b_token, b_min=51, b_max=101,
            gain_b=0.02 * 101 if rule is NRunRule.BAND else 0.0, u_low=0.85, u_high=0.95,
            step=step if rule is NRunRule.STEP else None,
        )  # fmt: skip

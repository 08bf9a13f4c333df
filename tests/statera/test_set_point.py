"""N_run at its set-point: the number of sequences with which a step takes what is promised."""

from dataclasses import replace
from math import inf

import pytest

from hmas.contracts.telemetry import EngineSample
from hmas.statera.agent.band import BandController
from hmas.statera.agent.config import BandConfig, NRunRule, SetPointConfig
from hmas.statera.agent.set_point import SetPoint
from tests.statera.test_band import BAND, N_MAX, Plant, drive

CONFIG = SetPointConfig()
STEP = BandConfig(rule=NRunRule.STEP)
IDLE = Plant().cycle(BandController(STEP, N_MAX), 0.1)


def sample(running: int, step_s: float, slo_s: float = 0.07, kv_usage: float = 0.1) -> EngineSample:
    used = max(kv_usage, step_s / slo_s)
    return replace(IDLE, running=running, step_s=step_s, utilisation=used, kv_usage=kv_usage)


def line(n: int, base_s: float = 0.01, each_s: float = 0.0005) -> EngineSample:
    return sample(n, base_s + each_s * n)


def seen(*samples: EngineSample, times: int = 2000, config: SetPointConfig = CONFIG) -> SetPoint:
    point = SetPoint(config, N_MAX)
    for each in samples * times:
        point.observe(each)
    return point


@pytest.mark.parametrize("numbers", [(1, 40, 60), (30, 60), (100, 200)])
def test_a_line_of_steps_gives_the_number_of_sequences_at_which_it_meets_the_slo(numbers: tuple[int, ...]) -> None:
    certain = replace(CONFIG, doubt=0.0)
    assert seen(*map(line, numbers), config=certain).sequences == pytest.approx(113)
    assert seen(*map(line, numbers)).sequences == pytest.approx(113, rel=0.08)


def test_without_a_base_that_was_seen_it_is_sought_from_below_what_runs() -> None:
    """All that was ever seen are steps of 256 sequences: without any base the goal would be met by half of them."""
    assert seen(line(256)).sequences == pytest.approx(256 * 0.0665 / 0.138, rel=0.02)


def test_little_that_was_seen_hardly_holds_an_engine_back() -> None:
    """One long prompt makes the step of a lone sequence five times as long."""
    assert seen(sample(2, 0.011), sample(2, 0.055), times=1).sequences > 100


def test_without_an_slo_there_is_no_set_point() -> None:
    assert SetPoint(CONFIG, N_MAX).sequences == inf
    assert seen(sample(4, 0.02, slo_s=inf)).sequences == inf


def test_where_memory_is_what_binds_the_slo_is_known_from_below() -> None:
    """Steps of 20 ms in a memory that is 80 % full: the SLO is no shorter than 25 ms, and 70 ms is no contradiction."""
    point = seen(line(1), line(20))
    before = point.sequences
    point.observe(replace(line(20), utilisation=0.8, kv_usage=0.8))
    assert point.sequences == pytest.approx(before, rel=0.01)
    point.observe(replace(line(20), step_s=0.09, utilisation=0.9, kv_usage=0.9))
    assert point.sequences > 1.3 * before


def test_a_backlog_is_served_at_the_set_point() -> None:
    plant, controller = Plant(), BandController(STEP, N_MAX)
    drive(plant, controller, 300.0)
    last = drive(plant, controller, 100.0, 300.0)
    for n_run, utilisation in last:
        assert n_run == pytest.approx(plant.ideal, abs=4)
        assert utilisation <= BAND.high + 0.03


def test_an_engine_that_becomes_slower_runs_fewer_and_recovers() -> None:
    plant, controller = Plant(), BandController(STEP, N_MAX)
    drive(plant, controller, 200.0)
    usual = controller.n_run
    plant.base_s, plant.slope_s = 1.5 * plant.base_s, 1.5 * plant.slope_s
    drive(plant, controller, 400.0, 200.0)
    assert controller.n_run == pytest.approx(plant.ideal, rel=0.1)
    assert controller.n_run < 0.7 * usual
    plant.base_s, plant.slope_s = plant.base_s / 1.5, plant.slope_s / 1.5
    drive(plant, controller, 400.0, 600.0)
    assert controller.n_run == pytest.approx(usual, rel=0.1)


def test_light_load_is_not_held_back() -> None:
    """Far fewer requests than the set-point would let run."""
    plant, controller = Plant(demand=20), BandController(STEP, N_MAX)
    assert all(n_run >= 100 for n_run, _ in drive(plant, controller, 120.0))


@pytest.mark.parametrize(("waiting", "kept"), [(0, False), (5, True)])
def test_n_run_is_not_cut_while_requests_wait_and_steps_are_short(waiting: int, kept: bool) -> None:
    """What was seen long enough says that a few sequences are enough; now steps are short."""
    controller = BandController(replace(STEP, min_samples=1), N_MAX)
    controller.move(0.0, 0, 0)
    for each in [line(1), sample(20, 0.2)] * 2000:
        controller.observe(each, BAND)
    controller.hold()
    controller.observe(line(20), BAND)
    controller.move(1.0, 20, waiting)
    assert (controller.n_run == N_MAX) is kept

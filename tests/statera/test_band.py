"""The outer loop against a small plant: an engine whose step time grows with its batch, with the inner loop of the
worker around it. Departures are exponential, so a cut takes effect only as requests end."""

import itertools
import random
from dataclasses import dataclass, field

import pytest

from hmas.contracts.telemetry import EngineSample
from hmas.statera.agent.band import Band, NRunController
from hmas.statera.agent.config import NRunConfig, NRunRule
from tests.builders.telemetry import engine_sample

BAND = Band(0.85, 0.95)
N_MAX = 256


@dataclass
class Plant:
    """u = (base + slope * running) / SLO. `demand`: requests that want to run, None for an endless backlog."""

    base_s: float = 0.010
    slope_s: float = 0.0005
    slo_s: float = 0.070
    life_s: float = 8.0
    demand: int | None = None
    slots: int = N_MAX
    running: int = 0
    waiting: int = 0
    n_run: int = N_MAX
    b_token: float = N_MAX + 1
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    @property
    def ideal(self) -> float:
        return (BAND.high * self.slo_s - self.base_s) / self.slope_s

    @property
    def step_s(self) -> float:
        return self.base_s + self.slope_s * self.running

    def utilisation(self) -> float:
        return self.step_s / self.slo_s if self.running else 0.0

    def cycle(self, controller: NRunController, dt_s: float) -> EngineSample:
        self.running -= sum(self.rng.random() < dt_s / self.life_s for _ in range(self.running))
        low, high = controller.budget_bounds(self.running)
        error = BAND.error(self.utilisation())
        self.b_token = min(high, max(low, self.b_token - 0.02 * high * error))
        cap = min(self.n_run, int(self.b_token))
        wanted = cap if self.demand is None else min(cap, self.demand)
        in_flight = max(self.running + self.waiting, wanted)
        self.running = min(in_flight, self.slots)
        self.waiting = in_flight - self.running
        saturated = -1 if self.b_token <= low else int(self.b_token >= high)
        return engine_sample(
            running=self.running, waiting=self.waiting, step_s=self.step_s, n_run=self.n_run, b_token=int(self.b_token),
            utilisation=self.utilisation(), b_saturated=saturated,
        )  # fmt: skip

    @property
    def queued(self) -> int:
        if self.demand is None:
            return 1000
        return max(0, self.demand - self.running - self.waiting)


def drive(plant: Plant, controller: NRunController, seconds: float, start_s: float = 0.0) -> list[tuple[int, float]]:
    """(N_run, utilisation) at every 100 ms."""
    trace = []
    for i in range(int(seconds * 10)):
        sample = plant.cycle(controller, 0.1)
        controller.observe(sample, BAND)
        controller.move(start_s + i * 0.1, plant.running + plant.waiting, plant.queued)
        plant.n_run = controller.n_run
        trace.append((controller.n_run, plant.utilisation()))
    return trace


def test_overload_is_brought_into_the_band_without_oscillation() -> None:
    plant, controller = Plant(), NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    trace = drive(plant, controller, 120.0)
    settled = trace[600:]
    assert max(u for _, u in settled) <= BAND.high + 0.03
    assert min(u for _, u in settled) >= BAND.low - 0.05
    caps = [n for n, _ in settled]
    assert max(caps) - min(caps) <= 0.15 * plant.ideal
    turns = sum((b - a) * (c - b) < 0 for a, b, c in zip(caps, caps[1:], caps[2:], strict=False))
    assert turns <= 6


def test_the_cut_starts_from_what_runs_not_from_the_maximum() -> None:
    """Anti-windup: N_run far above the running count would take many moves to bind."""
    plant, controller = Plant(demand=150, slope_s=0.0006), NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    drive(plant, controller, 8.0)  # the inner loop needs about five to reach its bound
    assert controller.n_run < 150


def test_no_further_cut_while_the_last_one_drains() -> None:
    controller = NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    plant = Plant(life_s=1e9)  # nothing ever ends
    trace = drive(plant, controller, 60.0)
    first_cut = next(n for n, _ in trace if n < N_MAX)
    assert trace[-1][0] == first_cut >= 0.8 * N_MAX - 1


def test_a_light_load_is_never_throttled() -> None:
    plant, controller = Plant(demand=20), NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    assert {n for n, _ in drive(plant, controller, 60.0)} == {N_MAX}


def test_recovery_after_overload() -> None:
    plant, controller = Plant(), NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    drive(plant, controller, 60.0)
    assert controller.n_run < 0.7 * N_MAX
    plant.demand = 5
    drive(plant, controller, 120.0, start_s=60.0)
    assert controller.n_run == N_MAX


def test_room_is_used_again_when_the_plant_gets_faster() -> None:
    plant, controller = Plant(), NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    drive(plant, controller, 60.0)
    before = controller.n_run
    plant.slope_s /= 2.0
    trace = drive(plant, controller, 60.0, start_s=60.0)
    assert controller.n_run > 1.5 * before
    assert max(u for _, u in trace) <= BAND.high + 0.12


def test_what_the_engine_cannot_run_waits_outside_of_it() -> None:
    """An engine with 32 slots that said 256: utilisation is low, and yet N_run must come down to what it runs."""
    plant, controller = Plant(slots=32), NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    trace = drive(plant, controller, 120.0)
    assert plant.running == 32
    assert plant.waiting <= 4
    assert max(n for n, _ in trace[600:]) <= 36
    plant.demand = 10
    drive(plant, controller, 60.0, start_s=120.0)
    assert 32 <= controller.n_run <= 36  # a lull does not make it forget


def test_a_shown_limit_is_probed_and_forgotten() -> None:
    plant, controller = Plant(slots=32), NRunController(NRunConfig(rule=NRunRule.BAND, limit_memory_s=30.0), N_MAX)
    drive(plant, controller, 60.0)
    plant.slots = N_MAX
    drive(plant, controller, 60.0, start_s=60.0)
    assert controller.n_run > 80


def test_a_burst_that_still_fills_the_engine_shows_no_limit() -> None:
    controller = NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    for i in range(40):  # ten sequences a second get through prefill, the others wait for it
        running = 10 + i
        sample = engine_sample(running=running, waiting=100 - running, n_run=N_MAX, b_token=N_MAX, b_saturated=1)
        controller.observe(sample, BAND)
        controller.move(i * 0.1, 100, queued=50)
    assert controller.n_run == N_MAX


def test_n_run_does_not_rise_where_something_else_binds() -> None:
    controller = NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    controller.adopt(100)
    sample = engine_sample(running=40, kv_usage=0.5, n_run=100, b_token=N_MAX + 1, b_saturated=1)
    for i in range(100):
        controller.observe(sample, BAND)
        controller.move(i * 0.25, 40, queued=500)  # the memory fence keeps them out
    assert controller.n_run == 100


@pytest.mark.parametrize(("unconditional", "moved"), [(False, False), (True, True)])
def test_moves_only_when_the_inner_loop_is_exhausted_unless_told_otherwise(unconditional: bool, moved: bool) -> None:
    controller = NRunController(NRunConfig(rule=NRunRule.BAND, unconditional=unconditional), N_MAX)
    sample = engine_sample(
        running=200, kv_usage=0.5, step_s=0.1, n_run=N_MAX, b_token=230, utilisation=1.3, b_saturated=0
    )
    for i in range(100):
        controller.observe(sample, BAND)
        controller.move(i * 0.1, 200, 10)
    assert (controller.n_run < N_MAX) is moved


def test_moves_keep_their_period_and_slew() -> None:
    config = NRunConfig(rule=NRunRule.BAND, period_s=1.0, slew=0.1)
    controller = NRunController(config, N_MAX)
    caps = [controller.n_run]
    for i in range(50):
        running = controller.n_run
        sample = engine_sample(
            running=running, kv_usage=1.0, step_s=0.3, n_run=running, b_token=running, utilisation=3.0, b_saturated=-1
        )
        controller.observe(sample, BAND)
        if controller.move(i * 0.1, running, 10):
            caps.append(controller.n_run)
    assert len(caps) == 5  # 4 s hold four moves
    assert all(b >= int(a * 0.9) - 1 for a, b in itertools.pairwise(caps))


def test_bounds_are_never_left() -> None:
    controller = NRunController(NRunConfig(rule=NRunRule.BAND, n_min=4), 16)
    for i in range(400):
        running = controller.n_run
        high = engine_sample(
            running=running, kv_usage=1.0, kv_capacity_tokens=1, step_s=1.0, n_run=running, b_token=1, utilisation=9.0,
            b_saturated=-1,
        )  # fmt: skip
        controller.observe(high, BAND)
        controller.move(i * 0.25, running, 10)
    assert controller.n_run == 4
    assert NRunController(NRunConfig(rule=NRunRule.BAND, n_min=4), 1).n_run == 4


@pytest.mark.parametrize("running", [0, 1, 100, 255, 256, 400])
def test_b_min_leaves_room_for_running_decodes_and_a_prefill_chunk(running: int) -> None:
    controller = NRunController(NRunConfig(rule=NRunRule.BAND, min_prefill_chunk=64), N_MAX)
    sample = engine_sample(running=running, kv_capacity_tokens=1, step_s=0.0, n_run=1, b_token=3, utilisation=0.1)
    control = controller.control(sample, BAND, None)
    assert control.b_min == min(control.b_max, running + 64)
    assert control.b_min <= control.b_token <= control.b_max
    assert (control.u_low, control.u_high) == (0.85, 0.95)


def test_hold_forgets_what_was_seen() -> None:
    controller = NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    hot = engine_sample(
        running=256, kv_usage=1.0, kv_capacity_tokens=1, step_s=1.0, n_run=256, b_token=1, utilisation=5.0,
        b_saturated=-1,
    )  # fmt: skip
    for i in range(50):
        controller.observe(hot, BAND)
        controller.hold()
        assert not controller.move(i * 0.1, 256, 10)
    assert controller.n_run == N_MAX


def held(controller: NRunController, prefill_tokens_per_s: float, kv_usage: float = 0.1, capacity: int = 10**6) -> None:
    """Five seconds in which four sequences run and three wait in the engine."""
    start_s = next(START_S)
    for i in range(50):
        sample = engine_sample(
            waiting=3, kv_usage=kv_usage, kv_capacity_tokens=capacity, step_s=0.05,
            prefill_tokens_per_s=prefill_tokens_per_s, decode_tokens_per_s=60.0, n_run=controller.n_run,
            b_token=N_MAX + 1, utilisation=0.9,
        )  # fmt: skip
        controller.observe(sample, BAND)
        controller.move(start_s + 0.1 * i, 7, 10)


START_S = itertools.count(0.0, 5.0)


def test_long_prompts_that_hold_up_others_show_no_limit() -> None:
    controller = NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    held(controller, 18_000.0)
    assert controller.n_run == N_MAX


def test_a_limit_shows_once_the_engine_computes_few_prompts() -> None:
    controller = NRunController(NRunConfig(rule=NRunRule.BAND), N_MAX)
    held(controller, 18_000.0)
    held(controller, 2_000.0)
    assert controller.n_run <= 5


def test_preempted_requests_that_wait_for_memory_show_no_limit() -> None:
    """The fence gives memory away. Where it cannot, because the engine does not say how much it has, N_run is cut."""
    controller = NRunController(NRunConfig(), N_MAX)
    held(controller, 18_000.0)
    held(controller, 2_000.0, kv_usage=0.97)
    assert controller.n_run == N_MAX
    held(controller, 2_000.0, kv_usage=0.97, capacity=0)
    assert controller.n_run <= 5

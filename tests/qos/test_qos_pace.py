"""What V_long tells of the engines' pace and of the demand by pace."""

from dataclasses import replace
from random import Random

import pytest

from hmas.contracts.control_agents import EpochGranted, PublishLong, TimerTicked, WorkerReported
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.telemetry import EngineSample, RequestQueued
from hmas.contracts.views import DemandView, VLong
from hmas.laws.pace_fit import PaceFit, PaceFitConfig, slownesses
from hmas.qos.agent import QosAgent
from hmas.qos.agent.config import QosConfig
from hmas.qos.agent.demands import SLO_RATIO, Demands, count_demand, demand_views
from tests.builders.telemetry import request_queued
from tests.gateway.gateway_script import heartbeat
from tests.qos.test_qos_agent import SAMPLE, telemetry

LAW = (0.04, 2e-4, 1e-6, 2e-4)


def engine_sample(rng: Random, slowness: float, busy: float = 1.0) -> EngineSample:
    """A sample of an engine whose steps follow `LAW`, `slowness` times as slowly, at some load."""
    sequences, context, prompt = rng.uniform(5, 60), rng.uniform(5_000, 90_000), rng.uniform(0, 400)
    step_s = slowness * (LAW[0] + LAW[1] * sequences + LAW[2] * context + LAW[3] * prompt)
    per_s = busy / step_s
    return replace(
        SAMPLE,
        kv_capacity_tokens=100_000,
        kv_usage=context / 100_000,
        step_s=step_s,
        decode_tokens_per_s=sequences * per_s,
        prefill_tokens_per_s=prompt * per_s,
        busy=busy,
    )


def fitted(busy: float, seed: int = 1, slowness: float = 1.0, observations: int = 60) -> PaceFit:
    fit, rng = PaceFit(PaceFitConfig()), Random(seed)
    for number in range(observations):
        sample = engine_sample(rng, slowness, busy)
        for i in range(0 if number == 0 else 1, 11):  # one observation
            fit.add(5.0 * number + 0.5 * i, sample)
    return fit


def test_the_pace_law_is_found_again_whether_the_engine_is_always_busy_or_not() -> None:
    for busy in (1.0, 0.5):
        found = fitted(busy).view("w", "e")
        assert found.observations >= 50
        assert (found.base_s, found.sequence_s, found.context_s, found.prompt_s) == pytest.approx(LAW, rel=0.1)


def test_an_idle_engine_says_nothing_of_its_pace() -> None:
    fit = PaceFit(PaceFitConfig())
    for i in range(200):
        fit.add(0.1 * i, replace(SAMPLE, busy=0.1))
    assert fit.view("w", "e").observations == 0


def queued(tpot_s: float, output: float, p90: float = 0.0, prompt: int = 100) -> RequestQueued:
    return request_queued(
        prompt_tokens=prompt, predicted_output_tokens=output, predicted_output_tokens_p90=p90, tpot_slo_s=tpot_s,
        age_s=0.1,
    )  # fmt: skip


def views(*rows: RequestQueued, most: int = 512) -> tuple[DemandView, ...]:
    demands: Demands = {}
    for row in rows:
        count_demand(demands, row, most)
    return demand_views([demands], most, 120.0)


def test_demand_is_counted_by_tpot_slo_and_predicted_lengths() -> None:
    found = views(queued(0.07, 100.0), queued(0.07, 101.0), queued(0.07, 900.0), queued(0.2, 100.0))
    assert [(d.requests, d.output_tokens) for d in found] == [(2, 201), (1, 900), (1, 100)]
    for slo_s, demand in zip((0.07, 0.07, 0.2), found, strict=True):
        assert slo_s <= demand.tpot_slo_s < 1.06 * slo_s
    assert found[0].rps == pytest.approx(2 / 120.0)


def test_demand_of_one_judged_by_its_last_token_is_counted_by_the_pace_that_it_needs() -> None:
    (found,) = views(replace(queued(0.07, 100.0), needed_tpot_s=0.2))
    assert 0.2 <= found.tpot_slo_s < 1.06 * 0.2


def test_the_spread_of_a_prediction_counts_in_the_context_that_it_reads() -> None:
    (sure,), (unsure,) = views(queued(0.07, 100.0)), views(queued(0.07, 100.0, p90=228.16))
    assert sure.context_tokens == pytest.approx(100 * 100 + 100**2 / 2)
    assert unsure.context_tokens == pytest.approx(100 * 100 + (100**2 + 100**2) / 2, rel=1e-3)


def test_new_kinds_beyond_the_bound_are_left_out_and_so_are_requests_without_an_slo() -> None:
    assert len(views(*(queued(0.05 * 1.2**i, 100.0) for i in range(20)), most=5)) == 5
    assert views(queued(0.0, 100.0)) == ()
    assert views(queued(0.07, 0.0)) == (), "what generates nothing has no pace"
    assert len(views(queued(0.07, 0.5))) == 1


def test_v_long_tells_the_demand_that_waits_and_forgets_what_came_long_ago() -> None:
    agent = QosAgent(QosConfig())
    agent.step(0.0, EpochGranted(1))
    agent.step(0.1, WorkerReported(telemetry(queued=(queued(0.07, 500.0),)).telemetry))
    effects = agent.step(5.1, TimerTicked())
    (view,) = [e.view for e in effects if isinstance(e, PublishLong)]
    assert [d.requests for d in view.demands] == [1]
    later = agent.step(200.0, TimerTicked())
    assert [e.view.demands for e in later if isinstance(e, PublishLong)] == [()]


def test_an_engine_observed_seldom_is_told_by_those_of_its_hardware() -> None:
    young, old = fitted(1.0, seed=2, observations=1), fitted(1.0)
    assert young.observations == 1
    assert young.view("w", "e").base_s != pytest.approx(LAW[0], rel=0.2)
    assert young.view("w", "e", [(old, 1.0)]).base_s == pytest.approx(LAW[0], rel=0.01)
    assert old.view("w", "e", [(young, 1.0)]).base_s == pytest.approx(LAW[0], rel=0.01)


def test_the_law_of_a_slow_engine_is_that_of_its_hardware_times_how_slow_it_is() -> None:
    fits = [fitted(1.0, seed, slowness, observations=4) for seed, slowness in ((2, 2.0), (3, 1.0), (4, 1.0))]
    slow = slownesses(fits)
    assert [each / slow[1] for each in slow] == pytest.approx([2.0, 1.0, 1.0], rel=0.01)
    for i, times in enumerate((2.0, 1.0, 1.0)):
        found = fits[i].view("w", "e", [(fits[j], slow[i] / slow[j]) for j in range(3) if j != i])
        laws = found.base_s, found.sequence_s, found.context_s, found.prompt_s
        assert laws == pytest.approx([times * each for each in LAW], rel=0.05)


def test_nobody_is_called_slow_on_few_observations_or_without_others() -> None:
    assert slownesses([fitted(1.0, 2, 2.0, observations=3), fitted(1.0, 3, observations=3)]) == [1.0, 1.0]
    assert slownesses([fitted(1.0, 2, 2.0)]) == [1.0]
    assert slownesses([]) == []


def test_v_long_tells_a_slow_engine_by_those_of_its_hardware() -> None:
    agent = QosAgent(QosConfig())
    agent.step(0.0, EpochGranted(1))
    (info,) = heartbeat("w").engines
    engines = tuple(replace(info, engine=name) for name in ("e1", "e2", "e3"))
    agent.step(0.0, HeartbeatReceived(heartbeat("w", engines=engines)))
    for number in range(5):
        rng = Random(number)
        steps = [engine_sample(rng, slowness) for slowness in (1.0, 1.0, 2.0)]
        samples = tuple(replace(each, engine=name) for each, name in zip(steps, ("e1", "e2", "e3"), strict=True))
        for i in range(0 if number == 0 else 1, 11):  # one observation
            agent.step(5.0 * number + 0.5 * i, WorkerReported(replace(telemetry().telemetry, engines=samples)))
    (view,) = [e.view for e in agent.step(25.1, TimerTicked()) if isinstance(e, PublishLong)]
    base_s = {pace.engine: pace.base_s for pace in view.paces}
    assert base_s == pytest.approx({"e1": LAW[0], "e2": LAW[0], "e3": 2 * LAW[0]}, rel=0.1)


def test_an_engine_of_which_nothing_was_observed_is_told_as_its_like() -> None:
    assert PaceFit(PaceFitConfig()).view("w", "e", [(fitted(1.0), 1.0)]).observations == 0


def test_v_long_has_room_for_both() -> None:
    assert {"demands", "paces"} <= set(VLong.__dataclass_fields__)


@pytest.mark.parametrize("steps", [-60, -20, 0, 3])
def test_a_tpot_slo_at_the_end_of_a_range_belongs_to_it(steps: int) -> None:
    (demand,) = views(queued(SLO_RATIO**steps, 100.0))
    assert demand.tpot_slo_s == pytest.approx(SLO_RATIO**steps)
    (stricter,) = views(queued(SLO_RATIO**steps * 0.999, 100.0))
    assert stricter.tpot_slo_s == pytest.approx(SLO_RATIO**steps)
    (laxer,) = views(queued(SLO_RATIO**steps * 1.001, 100.0))
    assert laxer.tpot_slo_s == pytest.approx(SLO_RATIO ** (steps + 1))

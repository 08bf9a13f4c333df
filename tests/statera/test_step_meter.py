"""What Statera learns of an engine's steps, and when it tells."""

from dataclasses import replace

import pytest

from hmas.contracts.control_agents import EpochGranted, PublishTuple, ShortViewReceived
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.telemetry import EngineSample
from hmas.statera.agent import StateraAgent
from hmas.statera.agent.config import BandConfig, NRunRule, StateraConfig, StepMeterConfig
from hmas.statera.agent.step_meter import StepMeter
from tests.statera.test_statera_agent import HEARTBEAT, SAMPLE, VIEW, telemetry

BASE_S, SEQUENCE_S, CONTEXT_S, PROMPT_S = 0.04, 2e-4, 1e-6, 2e-4
PROMPTS = 0.5  # prompt tokens that are computed for each decoded one


def sample(number: int) -> EngineSample:
    """The engine with one of several loads, always busy."""
    running, context = 5 + 7 * (number % 9), 400.0 * (5 + 11 * (number % 7))
    step_s = BASE_S + (SEQUENCE_S + PROMPT_S * PROMPTS) * running + CONTEXT_S * context
    return replace(
        SAMPLE,
        running=running,
        kv_usage=context / SAMPLE.kv_capacity_tokens,
        step_s=step_s,
        decode_tokens_per_s=running / step_s,
        prefill_tokens_per_s=PROMPTS * running / step_s,
    )


def seen(seconds: int) -> StepMeter:
    meter = StepMeter(StepMeterConfig(), "e0")
    for tenth in range(10 * seconds):
        meter.observe(0.1 * tenth, sample(max(0, tenth - 1) // 50))  # an observation ends with the sample at its end
    return meter


def test_a_sequence_costs_what_it_takes_itself_and_its_share_of_the_prompts() -> None:
    cost = seen(600).cost
    assert cost is not None
    assert (cost.base_s, cost.context_s) == pytest.approx((BASE_S, CONTEXT_S), rel=0.1)
    assert cost.sequence_s == pytest.approx(SEQUENCE_S + PROMPT_S * PROMPTS, rel=0.1)


def test_nothing_is_told_before_enough_was_observed() -> None:
    assert seen(25).cost is None
    assert seen(40).cost is not None


def test_an_idle_engine_says_nothing() -> None:
    meter = StepMeter(StepMeterConfig(), "e0")
    for tenth in range(1000):
        meter.observe(0.1 * tenth, replace(sample(tenth), busy=0.1))
    assert meter.cost is None


@pytest.mark.parametrize("rule", NRunRule)
def test_the_control_tuple_tells_it_by_the_rule_step_alone(rule: NRunRule) -> None:
    agent = StateraAgent(StateraConfig(band=BandConfig(rule=rule)))
    agent.step(0.0, EpochGranted(1))
    for tenth in range(600):
        agent.step(0.1 * tenth, HeartbeatReceived(HEARTBEAT))
        agent.step(0.1 * tenth, telemetry(sample(tenth // 50)))
    effects = agent.step(60.0, ShortViewReceived(VIEW))
    (control,) = [effect.control for effect in effects if isinstance(effect, PublishTuple)]
    assert (control.engines[0].step is not None) == (rule is NRunRule.STEP)

"""What Statera learns of an engine's steps, and when it tells."""

from dataclasses import replace

import pytest

from hmas.contracts.control import StepTime
from hmas.contracts.control_agents import EpochGranted, PublishTuple, ShortViewReceived
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.telemetry import EngineSample
from hmas.statera.agent import StateraAgent
from hmas.statera.agent.config import NRunConfig, NRunRule, StateraConfig, StepMeterConfig
from hmas.statera.agent.step_meter import StepMeter
from tests.statera.test_statera_agent import HEARTBEAT, SAMPLE, VIEW, telemetry

BASE_S, SEQUENCE_S, CONTEXT_S, PROMPT_S = 0.04, 2e-4, 1e-6, 2e-4
PROMPTS = 0.5  # prompt tokens that are computed for each decoded one


def sample(number: int, prompts: float = PROMPTS) -> EngineSample:
    """The engine with one of several loads, always busy. `prompts`: prompt tokens that it computes for each decoded
    one."""
    running, context = 5 + 7 * (number % 9), 400.0 * (5 + 11 * (number % 7))
    step_s = BASE_S + (SEQUENCE_S + PROMPT_S * prompts) * running + CONTEXT_S * context
    return replace(
        SAMPLE,
        running=running,
        kv_usage=context / SAMPLE.kv_capacity_tokens,
        step_s=step_s,
        decode_tokens_per_s=running / step_s,
        prefill_tokens_per_s=prompts * running / step_s,
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


def test_the_share_of_the_prompts_is_the_prompt_tokens_of_each_decoded_one() -> None:
    """The fit can tell a prompt token from a sequence here, because one comes without the other."""
    meter = StepMeter(StepMeterConfig(), "e0")
    for tenth in range(6300):  # two rounds through all loads, of which the meter remembers the last half minute
        number = max(0, tenth - 1) // 50
        meter.observe(0.1 * tenth, sample(number, prompts=0.1 if number < 63 else 0.4))
    assert meter.cost is not None
    assert meter.cost.sequence_s == pytest.approx(SEQUENCE_S + PROMPT_S * 0.4, rel=0.1)


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
    agent = StateraAgent(StateraConfig(band=NRunConfig(rule=rule)))
    agent.step(0.0, EpochGranted(1))
    for tenth in range(600):
        agent.step(0.1 * tenth, HeartbeatReceived(HEARTBEAT))
        agent.step(0.1 * tenth, telemetry(sample(tenth // 50)))
    effects = agent.step(60.0, ShortViewReceived(VIEW))
    (control,) = [effect.control for effect in effects if isinstance(effect, PublishTuple)]
    assert (control.engines[0].step is not None) == (rule is NRunRule.STEP)


def test_a_cost_that_is_known_is_told_from_the_start_and_never_learnt() -> None:
    known = StepTime(0.01, 1e-4, 1e-7)
    config = StepMeterConfig(known=(("e0", known), ("e1", StepTime(1.0, 1.0, 1.0))))
    meter = StepMeter(config, "e0")
    for tenth in range(1000):
        assert meter.cost == known
        meter.observe(0.1 * tenth, sample(tenth // 50))
    assert StepMeter(config, "e2").cost is None


def test_the_cost_is_told_with_the_last_of_the_observations_that_are_needed() -> None:
    """Each takes 5 s, and one more step until the next begins."""
    for needed in (1, 3):
        meter = StepMeter(StepMeterConfig(observations=needed), "e0")
        told = []
        for at_s in range(5 * needed + 1):
            meter.observe(float(at_s), sample(at_s // 5))
            told.append(meter.cost is not None)
        assert told == [False] * 5 * needed + [True]


def test_an_engine_that_decodes_nothing_has_no_prompts_by_its_sequences() -> None:
    meter = StepMeter(StepMeterConfig(), "e0")
    for at_s in range(200):
        prompts = 100.0 * (1 + at_s // 5 % 3)
        step_s = BASE_S + PROMPT_S * prompts
        meter.observe(
            float(at_s),
            replace(
                SAMPLE, kv_usage=0.0, step_s=step_s, decode_tokens_per_s=0.0, prefill_tokens_per_s=prompts / step_s
            ),
        )
    assert meter.cost is not None
    assert meter.cost.sequence_s == 0.0


def test_rates_of_tokens_fade_by_the_share_that_is_kept() -> None:
    meter = StepMeter(StepMeterConfig(keep=0.5, observations=1), "e0")
    rates = [(80.0, 400.0), (40.0, 100.0), (20.0, 200.0)]
    for at_s, (prefill, decode) in enumerate(rates):
        meter.observe(float(at_s), replace(SAMPLE, prefill_tokens_per_s=prefill, decode_tokens_per_s=decode))
    assert (meter._prefilled, meter._decoded) == (20.0 + 20.0 + 20.0, 100.0 + 50.0 + 200.0)

"""What V_long tells of the engines' pace and of the demand by pace."""

from dataclasses import replace
from random import Random

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.contracts.views import VLong
from hmas.qos.agent.config import PaceFitConfig
from hmas.qos.agent.demands import Demands, count_demand, demand_views
from hmas.qos.agent.pace_fit import PaceFit
from tests.qos.test_qos_agent import SAMPLE, settled

LAW = (0.04, 2e-4, 1e-6, 2e-4)


def fitted(busy: float, seed: int = 1) -> PaceFit:
    fit, rng = PaceFit(PaceFitConfig()), Random(seed)
    for number in range(60):
        sequences, context, prompt = rng.uniform(5, 60), rng.uniform(5_000, 90_000), rng.uniform(0, 400)
        step_s = LAW[0] + LAW[1] * sequences + LAW[2] * context + LAW[3] * prompt
        per_s = busy / step_s
        sample = replace(
            SAMPLE,
            kv_capacity_tokens=100_000,
            kv_usage=context / 100_000,
            step_s=step_s,
            decode_tokens_per_s=sequences * per_s,
            prefill_tokens_per_s=prompt * per_s,
            busy=busy,
        )
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


def views(*rows: tuple[float, int, Outcome], age_s: float = 120.0, most: int = 512) -> list[tuple[float, int, int]]:
    demands: Demands = {}
    for tpot_s, output, outcome in rows:
        request = settled(slo=Slo(4.0, tpot_s), output_tokens=output, outcome=outcome, predicted_output_tokens=700.0)
        count_demand(demands, request, most)
    return [(d.tpot_slo_s, d.requests, d.output_tokens) for d in demand_views([demands], most, 120.0, age_s)]


def test_demand_is_counted_by_tpot_slo_and_lengths() -> None:
    ok = Outcome.FINISHED
    found = views((0.07, 100, ok), (0.07, 101, ok), (0.07, 900, ok), (0.2, 100, ok))
    assert [row[1:] for row in found] == [(2, 201), (1, 900), (1, 100)]
    for slo_s, (upper_s, _, _) in zip((0.07, 0.07, 0.2), found, strict=True):
        assert slo_s <= upper_s < 1.06 * slo_s


def test_the_length_of_what_did_not_finish_is_the_predicted_one() -> None:
    assert views((0.07, 3, Outcome.CANCELLED))[0][2] == 700


def test_new_kinds_beyond_the_bound_are_left_out() -> None:
    assert len(views(*((0.05 * 1.2**i, 100, Outcome.FINISHED) for i in range(20)), most=5)) == 5


def test_requests_that_take_long_are_seen_less_often_at_first() -> None:
    def rates(age_s: float) -> list[float]:
        demands: Demands = {}
        for output, took_s in ((100, 5.0), (1000, 60.0)):
            count_demand(demands, settled(output_tokens=output, last_token_s=took_s), 512)
        return [d.rps for d in demand_views([demands], 512, min(age_s, 120.0), age_s)]

    early, late = rates(80.0), rates(600.0)
    assert early[0] == pytest.approx(1 / 75.0)
    assert early[1] == pytest.approx(1 / 20.0)
    assert late == pytest.approx([1 / 120.0] * 2)


def test_v_long_has_room_for_both() -> None:
    assert {"demands", "paces"} <= set(VLong.__dataclass_fields__)

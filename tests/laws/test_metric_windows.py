"""Windows of a run and the columns of H-MAS Table 4."""

from dataclasses import replace
from math import isnan

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.laws.scoring import Settlement, score, service_by_tenant, service_gain, stability, variation, windows


def settled(offered_s: float, ttft_s: float = 1.0, outcome: Outcome = Outcome.FINISHED) -> Settlement:
    """10 prompt tokens, 11 output tokens 0.1 s apart, SLO 2 s and 0.2 s."""
    slo = Slo(2.0, 0.2)
    return Settlement(
        request_id="r",
        tenant="t",
        task=TaskType.QA,
        model="m",
        outcome=outcome,
        slo=slo,
        prompt_tokens=10,
        output_tokens=11,
        ttft_s=ttft_s,
        tpot_s=0.1,
        last_token_s=ttft_s + 1.0,
        offered_s=offered_s,
    )


def test_goodput_counts_by_offer_and_esg_by_completion() -> None:
    found = windows([settled(1.0), settled(9.5), settled(12.0, ttft_s=5.0)], 20.0)
    assert [(w.start_s, w.offered, w.ok) for w in found] == [(0.0, 2, 2), (10.0, 1, 0)]
    assert [w.goodput for w in found] == [0.2, 0.0]
    assert [w.goodput_rate for w in found] == [1.0, 0.0]
    first, late = service_gain(settled(1.0)), service_gain(settled(12.0, ttft_s=5.0))
    assert [w.esg_rate for w in found] == pytest.approx([first / 10, (first + late) / 10])


def test_a_short_last_window_counts_by_its_own_length_and_the_outside_is_left_out() -> None:
    found = windows([settled(-1.0), settled(11.0), settled(15.0)], 15.0, 10.0)
    assert [(w.offered, w.goodput) for w in found] == [(0, 0.0), (1, 0.2)]
    assert isnan(found[0].goodput_rate)
    moved = windows([settled(111.0)], 15.0, 10.0, start_s=100.0)
    assert [(w.start_s, w.offered) for w in moved] == [(100.0, 0), (110.0, 1)]


def test_fairness_is_of_service_tokens_over_weight() -> None:
    """32 service tokens a request; what never had a first token was not served, but its tenant counts."""
    shed = replace(settled(3.0, outcome=Outcome.POOL_QUEUE_FULL), tenant="u", ttft_s=None, output_tokens=0)
    rows = [settled(0.0), settled(1.0), settled(2.0), replace(settled(1.0), tenant="u"), shed]
    assert service_by_tenant(rows) == {"t": 96.0, "u": 32.0}
    assert score(rows, 10.0).jain_index == pytest.approx(4**2 / (2 * (3**2 + 1)))
    assert score(rows, 10.0, {"t": 3.0}).jain_index == pytest.approx(1.0)
    assert score([*rows, replace(shed, tenant="v")], 10.0, {"t": 3.0}).jain_index == pytest.approx(2 / 3)


def test_fairness_counts_what_was_served_while_requests_were_offered() -> None:
    """Afterwards everybody is served at last, which would make any order look fair."""
    soon = replace(settled(0.0), prompt_tokens=10, output_tokens=10, ttft_s=1.0, last_token_s=5.0)
    half, late = replace(soon, tenant="u", ttft_s=8.0, last_token_s=12.0), replace(soon, tenant="v", ttft_s=11.0)
    assert service_by_tenant([soon, half, late]) == {"t": 30.0, "u": 30.0, "v": 30.0}
    assert service_by_tenant([soon, half, late], 10.0) == {"t": 30.0, "u": 20.0, "v": 0.0}
    assert score([soon, half, late], 10.0).jain_index == pytest.approx(50**2 / (3 * (30**2 + 20**2)))


def test_utility_is_goodput_with_the_weights_of_tenants_and_types() -> None:
    good, bad = settled(0.0), settled(1.0, outcome=Outcome.TIMED_OUT)
    assert score([good, bad], 10.0).utility_rate == 0.5
    assert score([good, bad, replace(bad, tenant="u")], 10.0, {"u": 2.0}).utility_rate == 0.25
    other = next(task for task in TaskType if task is not good.task)
    assert score([replace(good, task=other), bad], 10.0, classes={other: 3.0}).utility_rate == 0.75
    assert score([], 10.0).utility_rate == 0.0


def test_variation() -> None:
    assert variation([1.0, 3.0]) == 0.5
    assert isnan(variation([]))
    assert isnan(variation([0.0, 0.0]))


def test_table_4() -> None:
    phases = [*(settled(float(t)) for t in range(20)), *(settled(20.0 + t / 2) for t in range(40))]
    phases += [settled(40.0 + 2 * t) for t in range(10)]
    found = stability(phases, 60.0)
    assert found.goodput_drop_percent == pytest.approx(50.0)
    assert found.recovery == pytest.approx(0.25)
    assert found.cv_ttft == 0.0
    rates = [w.esg_rate for w in windows(phases, 60.0)]
    assert found.esg_average == pytest.approx(sum(rates) / 6)
    assert found.esg_peak_to_average == pytest.approx(max(rates) / found.esg_average)
    assert found.cv_esg == pytest.approx(variation(rates))


def test_a_run_in_which_nothing_finished() -> None:
    found = stability([settled(t, outcome=Outcome.TIMED_OUT) for t in (1.0, 31.0)], 60.0)
    assert isnan(found.goodput_drop_percent)
    assert isnan(found.esg_peak_to_average)
    assert found.esg_average == 0.0

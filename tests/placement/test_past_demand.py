"""Past requests as a demand: which count, and with which length and time."""

from dataclasses import replace

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.laws.placement.demand import SampledRequest
from hmas.laws.placement.past_demand import demand_in
from hmas.laws.request_rows import RequestRow

ROW = RequestRow(
    arrival_s=-1.0, tenant="t", prompt_tokens=100, slo=Slo(2.0, 0.05), outcome=Outcome.FINISHED, output_tokens=20,
    predicted_output_tokens=33.4,
)  # fmt: skip


def sampled(*rows: RequestRow, window_s: float = 60.0) -> tuple[SampledRequest, ...]:
    return demand_in(rows, "p", "m", window_s).requests


def test_the_last_seconds_count_from_their_own_beginning() -> None:
    rows = [replace(ROW, arrival_s=at_s) for at_s in (-100.0, -60.5, -60.0, -0.5)]
    found = demand_in(rows, "p", "m", 60.0)
    assert [each.arrival_s for each in found.requests] == [0.0, 0.5, 60.0]
    assert (found.pool, found.model, found.seconds) == ("p", "m", 60.0)
    assert demand_in(rows, "p", "m", 600.0).seconds == 99.5


@pytest.mark.parametrize(
    ("outcome", "tokens", "expected"),
    [
        (Outcome.FINISHED, 20, 20),
        (None, 20, 20),  # of a trace
        (None, 0, 33),  # it has not ended
        (Outcome.CANCELLED, 20, 33),
    ],
)
def test_a_request_that_has_not_ended_has_its_predicted_length(
    outcome: Outcome | None, tokens: int, expected: int
) -> None:
    (found,) = sampled(replace(ROW, outcome=outcome, output_tokens=tokens))
    assert found == SampledRequest(0.0, 100, expected, 2.0, 0.05)


def test_what_is_judged_whole_has_what_is_left_for_its_tokens() -> None:
    (found,) = sampled(replace(ROW, slo=Slo(2.0, 0.05, 4.0, whole=True)))
    assert found.tpot_slo_s == pytest.approx(0.1)


def test_what_has_no_length_or_no_time_is_left_out() -> None:
    unknown = replace(ROW, output_tokens=0, predicted_output_tokens=0.0)
    hopeless = replace(ROW, slo=Slo(2.0, 0.05, 1.0, whole=True))
    assert len(sampled(unknown, hopeless, replace(ROW, prompt_tokens=0), ROW)) == 1
    with pytest.raises(ValueError, match="the record of p has no request with a known length"):
        sampled(unknown, hopeless)
    with pytest.raises(ValueError, match="no request"):
        sampled()

"""Who answered, and how well, beside the model that stands in."""

from dataclasses import replace
from math import isnan, log

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost, TaskType
from hmas.contracts.telemetry import RequestFinished
from hmas.prediction.agent.agent import PredictItem
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.agent.linear import LinearProfile
from hmas.prediction.answers import PredictionErrors, StandIn
from tests.builders.telemetry import request_finished

QUERY = CostQuery(
    prompt_tokens=100, output_tokens=50.0, model="m", hardware="?", running=3, waiting=0, kv_usage=0.1, task=TaskType.QA
)
FINISHED = request_finished(
    tenant="t", upper_output_tokens=90.0, predictor="v", prefill_s=0.2, tpot_s=0.02, tpot_slo_s=0.1
)


def stand_in() -> StandIn:
    """It says 0.1 s and 10 ms, half of what is measured."""
    profile = LinearProfile(
        model="", hardware="", prefill_base=0.1, prefill_per_token=0.0, decode_base=0.01, decode_per_running=0.0
    )
    return StandIn([profile])


def item(number: int = 0) -> PredictItem:
    return PredictItem(f"r{number}", "w", replace(QUERY))


def test_it_tells_once_which_queries_it_answered() -> None:
    model, first, second = stand_in(), replace(QUERY), replace(QUERY)
    model.predict([first])
    assert first == second
    assert [model.answered(q) for q in (first, second, first)] == [True, False, False]


def test_the_errors_of_both_are_of_the_same_requests() -> None:
    errors = PredictionErrors(stand_in())
    assert isnan(errors.median("catboost", "ttft"))
    errors.predicted(item(), Cost(0.25, 0.02), "catboost")
    errors.finished("m", replace(FINISHED, request_id="r0"))
    assert errors.median("catboost", "ttft") == pytest.approx(log(1.25))
    assert errors.median("catboost", "tpot") == 0.0
    assert errors.median("linear", "ttft") == pytest.approx(log(2.0))
    assert errors.median("linear", "tpot") == pytest.approx(log(2.0))


def test_the_stand_in_is_corrected_as_well() -> None:
    errors = PredictionErrors(stand_in())
    for number in range(60):
        errors.predicted(item(number), Cost(0.1, 0.01), "catboost")
        errors.finished("m", replace(FINISHED, request_id=f"r{number}"))
    assert errors.median("linear", "ttft") < 0.05
    assert errors.median("catboost", "ttft") == pytest.approx(log(2.0))  # which nobody corrected


def test_an_error_of_one_that_answered_itself_counts_once() -> None:
    errors = PredictionErrors(stand_in())
    errors.predicted(item(), Cost(0.2, 0.02), "linear")
    errors.finished("m", replace(FINISHED, request_id="r0"))
    assert errors.median("linear", "ttft") == 0.0


@pytest.mark.parametrize("ended", [replace(FINISHED, outcome=Outcome.CANCELLED), replace(FINISHED, prefill_s=0.0)])
def test_what_was_not_measured_is_no_error(ended: RequestFinished) -> None:
    errors = PredictionErrors(stand_in())
    errors.predicted(item(), Cost(0.2, 0.02), "catboost")
    errors.finished("m", replace(ended, request_id="r0"))
    assert isnan(errors.median("catboost", "ttft"))


def test_an_error_is_that_of_the_kind_of_engine_that_the_request_ran_on() -> None:
    errors = PredictionErrors(stand_in())
    other = PredictItem("r0", "w", replace(QUERY, hardware="fast"))
    for each, said in ((item(), Cost(0.2, 0.02)), (other, Cost(0.05, 0.005))):
        errors.predicted(each, said, "catboost")
    errors.finished("m", replace(FINISHED, request_id="r0", prefill_s=0.05, tpot_s=0.005, kind=other.query.kind))
    assert errors.median("catboost", "ttft") == errors.median("catboost", "tpot") == 0.0

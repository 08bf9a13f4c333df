"""What an entry of the queue derives from its request and its tags."""

import pytest

from hmas.contracts.control import (
    Fence,
)
from hmas.contracts.request import Slo
from hmas.worker.agent.engines.admission import AdmissionGate
from tests.worker.builders import annotation, entry, request


def test_entry_derives_its_deadlines() -> None:
    made = entry(1, request("r", arrival_s=10.0, slo=Slo(2.0, 0.1)), tokens=50.0)
    assert made.deadline_s == 10.0 + 2.0 + 0.1 * 50
    assert made.ttft_deadline_s == 12.0
    made.annotate(annotation(20.0, ttft_s=0.5, tpot_s=0.05, slo=Slo(3.0, 0.2)))
    assert (made.total_s, made.deadline_s, made.slack_s) == (1.5, 17.0, 15.5)
    made.annotate(annotation(20.0, ttft_s=0.5, tpot_s=0.05, slo=Slo(3.0, 0.2, ttlt_s=8.0, whole=True)))
    assert (made.deadline_s, made.ttft_deadline_s) == (18.0, 17.0)
    capped = entry(2, request("c", max_tokens=10), tokens=50.0)
    assert (capped.predicted_tokens, capped.predicted_p90) == (10, 10)


def test_what_generates_nothing_costs_its_prompt_alone() -> None:
    """An embedding: whatever is predicted, no token is expected, no time to make one and no memory for one."""
    req = request("r", max_tokens=0, prompt_tokens=640, slo=Slo(2.0, 0.1))
    made = entry(1, req, tokens=50.0)
    made.annotate(annotation(200.0, ttft_s=0.5, tpot_s=0.05, slo=Slo(3.0, 0.2)))
    assert req.prefill_only
    assert (made.predicted_tokens, made.predicted_p90, made.work_tokens) == (0, 0, 640)
    assert (made.total_s, made.deadline_s) == (0.5, 3.0)
    gate = AdmissionGate(delta_frag=0.0, growth=1.25)
    gate.adopt(Fence((), 400.0))
    assert gate.upper(made) == gate.grown(made) == 1.0


def test_the_slos_of_an_entry_are_those_that_it_was_made_with() -> None:
    made = entry(1, request("r", slo=Slo(2.0, 0.1)), tokens=10.0)
    assert made.mean_context == 105.0
    assert (made.received_service, made.written_tokens) == (0.0, 0)
    made.output_tokens = 8
    assert made.mean_context == 108.0
    assert made.received_service == 116.0
    assert made.remaining_s == pytest.approx(0.1 + 0.02 * 2)
    made.first_token_s = 1.0
    assert made.remaining_s == pytest.approx(0.02 * 2)
    made.output_tokens = 12
    assert made.remaining_s == 0.0


def test_what_is_written_beyond_the_prediction_leaves_nothing_to_do() -> None:
    made = entry(1, request("r"), tokens=10.0)
    made.first_token_s = 1.0
    left = []
    for made.output_tokens in (4, 9, 10, 11, 50):
        left.append(made.remaining_s)
    assert left == pytest.approx([0.12, 0.02, 0.0, 0.0, 0.0])

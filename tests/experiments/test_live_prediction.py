"""What the recording of a prediction service tells of predicted and measured costs, and what the page makes of it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest

from experiments.live.prediction_page import (
    AFTER,
    GOALS,
    PredictionResults,
    PredictionRun,
    page_of,
    verdict,
    write_page,
)
from experiments.live.settled import SettledRequest, decode_floor, median_error, settled_requests
from hmas.contracts.cognition import BatchReturned, CallReceived
from hmas.contracts.control_agents import WorkerReported
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost, TaskType
from hmas.laws.recording import step_line
from hmas.prediction.agent.agent import PredictionAgent, PredictionConfig, PredictItem
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.agent.linear import LinearCostModel
from tests.builders.telemetry import request_finished, worker_telemetry

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
QUERY = CostQuery(
    prompt_tokens=1000, output_tokens=100.0, model="m", hardware="A100", running=3, waiting=0, kv_usage=0.1,
    task=TaskType.QA,
)  # fmt: skip


class Recording:
    """Steps a prediction agent and keeps the lines of its recording."""

    def __init__(self) -> None:
        self._agent = PredictionAgent(PredictionConfig(), LinearCostModel([]))
        self._calls = 0
        self.lines = ["the origin\n"]

    def _step(self, event: Any) -> None:
        self.lines.append(step_line(0.0, event, self._agent.step(0.0, event)))

    def asks(self, name: str, worker: str) -> None:
        self._calls += 1
        self._step(CallReceived(self._calls, (PredictItem(name, worker, QUERY),), 1.0))
        self._step(BatchReturned(self._calls, (Cost(0.2, 0.04),)))

    def ends(self, name: str, outcome: Outcome = Outcome.FINISHED, output_tokens: int = 50) -> None:
        finished = request_finished(
            name, outcome=outcome, prompt_tokens=1000, output_tokens=output_tokens, predictor="v", prefill_s=0.5,
            engine_wait_s=0.1, tpot_s=0.02,
        )  # fmt: skip
        self._step(
            WorkerReported(
                worker_telemetry(finished=(finished,))
            )
        )  # fmt: skip


def test_a_request_is_judged_by_what_was_said_of_it_and_by_how_many_had_settled_then() -> None:
    recording = Recording()
    recording.asks("a", "w")
    recording.asks("late", "w")
    recording.ends("a")
    recording.asks("b", "w")
    recording.asks("elsewhere", "v")
    recording.ends("b")
    recording.ends("late")
    recording.ends("elsewhere")
    a, b, late, elsewhere = settled_requests(recording.lines)
    assert (a.worker, a.settled, b.settled, late.settled) == ("w", 0, 1, 0)
    assert (elsewhere.worker, elsewhere.settled) == ("v", 0)
    assert (a.said_prefill_s, a.said_decode_s) == (0.2, 0.04)  # uncorrected
    assert (a.prefill_s, a.decode_s) == (0.4, 0.02)  # without the wait in the engine
    assert (b.said_prefill_s, b.said_decode_s) == pytest.approx((0.4, 0.02))  # corrected
    assert (a.prompt_tokens, a.running) == (1000, 3)
    assert a.error("prefill") == pytest.approx(log(2.0))
    assert b.error("decode") == pytest.approx(0.0)


def test_what_did_not_finish_is_not_judged_and_one_token_has_no_time_per_token() -> None:
    recording = Recording()
    for name in "abc":
        recording.asks(name, "w")
    recording.ends("a", Outcome.CANCELLED)
    recording.ends("unknown")
    recording.ends("b", output_tokens=1)
    recording.asks("d", "w")
    recording.ends("d")
    first, last = settled_requests([*recording.lines, recording.lines[-1][:-9]])  # the process ended in a line
    assert (first.settled, last.settled) == (0, 1)
    assert first.error("decode") is None
    assert first.error("prefill") is not None


def requests(errors: dict[int, float]) -> Iterator[SettledRequest]:
    """Yields a request for each number of settled requests, with its error in the logarithm."""
    for settled, error in errors.items():
        yield SettledRequest(
            worker="w", settled=settled, prompt_tokens=100, running=1, said_prefill_s=0.1, prefill_s=0.1,
            said_decode_s=0.02 * 2.718281828459045**error, decode_s=0.02,
        )  # fmt: skip


def test_a_stage_has_the_requests_predicted_in_it() -> None:
    found = list(requests({0: 0.9, AFTER - 1: 0.5, AFTER: 0.1, AFTER + 1: -0.3, AFTER + 2: 0.2}))
    assert median_error(found, "decode", AFTER) == pytest.approx(0.2)
    assert median_error(found, "decode", 0, AFTER) == pytest.approx(0.7)
    assert median_error(found, "decode", AFTER + 3) is None


def test_the_floor_is_what_the_number_that_runs_leaves_open() -> None:
    alike = list(requests({0: 3.0} | dict.fromkeys(range(AFTER, AFTER + 6), 0.0)))
    shorter = [replace(request, decode_s=0.01) for request in alike]
    assert decode_floor(alike, AFTER) == pytest.approx(0.0)
    assert decode_floor([*alike, *shorter], AFTER) == pytest.approx(log(2.0) / 2.0)
    assert decode_floor([*alike, *(replace(each, running=7) for each in shorter)], AFTER) == pytest.approx(0.0)
    assert decode_floor(alike, AFTER + 2) is None  # too few for a median to mean anything


def run(engine: str, error: float) -> PredictionRun:
    by_model = {"catboost tpot": error, "physical tpot": 0.1, "catboost ttft": 0.2}
    return PredictionRun(
        engine=engine, share=0.5, seed=1, full_rps=3.0, sent=4, answers={"catboost": 1.0}, by_model=by_model,
        commit="c1", unfinished={}, load=1.5, reasons=(), requests=list(requests({0: 1.0, AFTER: error})),
    )  # fmt: skip


def test_the_verdict_names_what_is_missed_and_no_other() -> None:
    found = PredictionResults(engines={"x": "", "y": ""}, runs=[run("x", 0.09), run("y", 0.15)])
    assert verdict(found.document()["pooled"]) == (
        "The goals are met for decode on x, prefill on x, prefill on y. "
        "Missed are:\n\n- decode on y (0.150, 1.5 times the goal; its floor, below, is -)"
    )
    unmeasured = PredictionResults(engines={"x": ""}, runs=[])
    assert verdict(unmeasured.document()["pooled"]).startswith("No goal is met.")


def test_engines_that_are_not_measured_again_stay(tmp_path: Path) -> None:
    write_page(PredictionResults(engines={"x": "one"}, runs=[run("x", 0.05)]), tmp_path)
    write_page(PredictionResults(engines={"y": "two"}, runs=[run("y", 0.2)]), tmp_path)
    page, facts, rows = write_page(PredictionResults(engines={"y": "three"}, runs=[run("y", 0.3)]), tmp_path)
    document = json.loads(facts.read_text())
    assert document["engines"] == {"x": "one", "y": "three"}
    assert [each["engine"] for each in document["runs"]] == ["x", "y"]
    assert [line.partition(",")[0] for line in rows.read_text().splitlines()] == ["engine", "x", "x", "y", "y"]
    assert "| x | decode | 0.10 | 0.050 | 0.050 - 0.050 | yes |" in page.read_text()
    assert "| y | decode | 0.10 | 0.300 | 0.300 - 0.300 | no |" in page.read_text()
    assert "- x: time per output token 0.050 beside 0.100 of the physical model (no worse)." in page.read_text()
    assert "- y: time per output token 0.300 beside 0.100 of the physical model (**worse**)." in page.read_text()
    assert "Commit: c1." in page.read_text()


def test_the_page_is_that_of_its_figures() -> None:
    document = json.loads((RESULTS / "live-prediction.json").read_text())
    assert (RESULTS / "live-prediction.md").read_text() == page_of(document)
    assert all(pooled[cost] for pooled in document["pooled"].values() for cost in GOALS)

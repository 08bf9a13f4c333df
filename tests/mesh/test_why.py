"""`hmas why` shows a request's attempts and runs."""

from typing import Any

import pytest
from rich.console import Console

from hmas.contracts.pair_forecast import PairReason
from hmas.operator.why import render_why

TIMELINE = {
    "topology": "edf", "queued_s": 0.25, "queue_length": 3, "overtaken": 1, "switches": 0,
    "upper_output_tokens": 220.0, "relegated": False, "pace_class": "<= 84 ms",
}  # fmt: skip
RUN = {"run": 7, "worker": "w1", "engine": "e1", "grant": 41, "bypass": False, "started_s": 0.3, "first_token_s": None,
       "ended_s": 0.9, "outcome": "engine_error", "timeline": TIMELINE}  # fmt: skip
TOLD = {
    "request_id": "req-1",
    "ttft_s": None,
    "slo": {"ttft_s": 2.0, "stated": True},
    "attempts": [
        {"attempt": 1, "worker": "w1", "sent_s": 0.001, "ended_s": 1.0, "outcome": "moved"},
        {"attempt": 2, "worker": "w2", "sent_s": 1.001, "ended_s": None, "outcome": None},
    ],
    "runs": [RUN, {**RUN, "run": 9, "engine": "e2", "grant": None, "bypass": True, "timeline": None}],
}


def test_attempts_are_rows_and_runs_are_told_with_their_wait() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render_why(TOLD))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert {"attempt worker sent s ended s outcome", "1 w1 0.001 1 moved", "2 w2 1.001 - -"} <= set(lines)
    assert lines.index("run 1") < lines.index("bypass no") < lines.index("run 2") < lines.index("bypass yes")
    assert "outcome engine_error" in lines
    assert "queued s 0.25, queue length 3" in " ".join(lines)
    assert "pace class <= 84 ms" in " ".join(lines)


PARTS = {"queued_s": 0.3, "prefill_s": 0.125, "waited_s": 0.0015, "transfer_and_first_step_s": 0.0485}
SPLIT = {**RUN, "prefill_engine": "e0", "computed_s": 0.425, "went_on_s": 0.4265, "first_token_s": 0.475,
         "ttft_parts": PARTS}  # fmt: skip


def shown(run: dict[str, Any]) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render_why({**TOLD, "runs": [run]}))
    return " ".join(captured.get().split())


def test_the_parts_of_the_first_token_are_told_with_both_engines() -> None:
    assert (
        "ttft parts queued 0.3000 s + prefill on e0 0.1250 s + waited between the engines 0.0015 s"
        " + transfer to e1 and its first step 0.0485 s = 0.4750 s"
    ) in shown(SPLIT)


def test_of_a_split_request_that_has_no_token_the_parts_are_told_that_are_over() -> None:
    parts = {**PARTS, "earlier_runs_s": 0.2, "waited_s": None, "transfer_and_first_step_s": None}
    told = shown({**SPLIT, "went_on_s": None, "first_token_s": None, "ttft_parts": parts})
    assert told.endswith("ttft parts queued 0.3000 s + lost with earlier runs 0.2000 s + prefill on e0 0.1250 s")


def forecast(engine: str, prefill: str, first_s: float, late: float) -> dict[str, Any]:
    return {"engine": engine, "prefill": prefill, "first_s": first_s, "late": late, "step_s": 0.02}


PAIR, ALONE = forecast("e1", "e0", 0.42, 0.1), forecast("e2", "", 0.61, 0.8)


@pytest.mark.parametrize(
    ("taken", "other", "reason", "words"),
    [
        (PAIR, ALONE, "fewer_late",
         "split, because fewer requests are late by it: e0 with e1 was expected to give the first token 0.420 s after"
         " the grant and to make 0.10 requests late; e2 alone, the best single engine, 0.610 s and 0.80 requests"),
        (ALONE, PAIR, "even",
         "not split, because about as many requests are late either way and engines keep to prompts or to answers: e2"
         " alone was expected to give the first token 0.610 s after the grant and to make 0.80 requests late; e0 with"
         " e1, the best pair, 0.420 s and 0.10 requests"),
        (ALONE, PAIR, "rule", "not split, because HMAS_SPLIT and the engines' roles leave no choice: e2 alone was"),
        (ALONE, None, "no_other", "not split, because no pair could take it then: e2 alone was"),
        (PAIR, None, "no_other", "split, because no single engine could take it then: e0 with e1 was"),
    ],
)  # fmt: skip
def test_why_a_request_was_split_or_not_is_one_sentence(
    taken: dict[str, Any], other: dict[str, Any] | None, reason: str, words: str
) -> None:
    choice = {"taken": taken, "other": other, "reason": reason}
    assert f"choice {words}" in shown({**RUN, "choice": choice})


def test_every_reason_has_words() -> None:
    told = {shown({**RUN, "choice": {"taken": PAIR, "other": None, "reason": each.value}}) for each in PairReason}
    assert len(told) == len(PairReason)


def test_a_step_of_the_answering_engine_is_told_as_expected() -> None:
    told = shown({**SPLIT, "choice": {"taken": PAIR, "other": ALONE, "reason": "even"}})
    assert "transfer to e1 and its first step, expected to take 0.0200 s, 0.0485 s = 0.4750 s" in told

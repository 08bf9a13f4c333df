"""`hmas why` shows a request's attempts and runs."""

from rich.console import Console

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

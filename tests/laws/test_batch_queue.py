"""Whatever calls, models and clocks do, every call is answered once, in time and in its own order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import TimerTicked
from hmas.laws.batching import BatchLimits, BatchQueue
from hmas.laws.cpu_share import FIRST_COST_S, CpuShare

BUDGET_S = 0.05


def queue(
    max_batch: int = 3, max_queued: int = 8, *, split: bool = True, share: CpuShare | None = None
) -> BatchQueue[str, str, str, str]:
    return BatchQueue(
        BatchLimits(max_batch, max_queued, split=split),
        row=str.upper,
        accept=lambda _, item, result: f"{item}={result}",
        fall_back=lambda _, item, reason: f"{item}:{reason}",
        share=share,
    )


def call(number: int, count: int) -> CallReceived[str]:
    return CallReceived(number, tuple(f"c{number}.{i}" for i in range(count)), BUDGET_S)


def test_a_split_call_is_answered_when_its_last_part_is() -> None:
    q = queue(max_batch=2)
    assert q.step(0.0, call(1, 3)) == [RunBatch(1, ("C1.0", "C1.1"))]
    assert q.step(0.01, BatchReturned(1, ("a", "b"))) == [RunBatch(2, ("C1.2",))]
    assert q.step(0.02, BatchFailed(2, "boom")) == [AnswerCall(1, ("c1.0=a", "c1.1=b", "c1.2:failed"))]


def test_a_late_call_keeps_what_the_model_answered() -> None:
    q = queue(max_batch=2)
    q.step(0.0, call(1, 3))
    q.step(0.01, BatchReturned(1, ("a", "b")))
    assert q.step(BUDGET_S, TimerTicked()) == [AnswerCall(1, ("c1.0=a", "c1.1=b", "c1.2:late"))]
    assert q.step(0.06, BatchReturned(2, ("c",))) == []


def test_what_exceeds_the_share_of_the_cpu_is_not_for_the_model() -> None:
    q = queue(share=CpuShare(3 * FIRST_COST_S))
    assert q.step(0.0, call(1, 5)) == [RunBatch(1, ("C1.0", "C1.1", "C1.2"))]
    assert q.step(0.0, call(2, 1)) == [AnswerCall(2, ("c2.0:cpu_share",))]
    answers = ("c1.0=a", "c1.1=b", "c1.2=c", "c1.3:cpu_share", "c1.4:cpu_share")
    assert q.step(0.01, BatchReturned(1, ("a", "b", "c"), 3 * FIRST_COST_S)) == [AnswerCall(1, answers)]
    assert q.step(0.5, call(3, 2)) == [RunBatch(2, ("C3.0",))]
    failed = q.step(0.6, BatchFailed(2, "boom", 9.0))  # a failure costs as well
    assert failed == [AnswerCall(3, ("c3.0:failed", "c3.1:cpu_share"))]
    assert q.step(9.0, call(4, 1)) == [AnswerCall(4, ("c4.0:cpu_share",))]


def test_a_late_call_gives_back_what_the_model_did_not_begin() -> None:
    q = queue(max_batch=2, share=CpuShare(4 * FIRST_COST_S))
    q.step(0.0, call(1, 4))
    late = q.step(BUDGET_S, TimerTicked())
    assert late == [AnswerCall(1, ("c1.0:late", "c1.1:late", "c1.2:late", "c1.3:late"))]
    q.step(0.06, BatchReturned(1, ("a", "b"), 2 * FIRST_COST_S))
    assert q.step(0.07, call(2, 4)) == [RunBatch(2, ("C2.0", "C2.1"))]
    assert q.step(0.08, TimerTicked()) == []


def test_a_call_that_is_not_split_waits_for_room() -> None:
    q = queue(max_batch=3, split=False)
    for number, count in ((1, 1), (2, 2), (3, 2)):
        q.step(0.0, call(number, count))
    assert q.step(0.01, BatchReturned(1, ("a",)))[1:] == [RunBatch(2, ("C2.0", "C2.1"))]


def test_a_call_that_would_exceed_what_may_queue_is_answered_at_once() -> None:
    q = queue(max_batch=2, max_queued=4)
    assert q.step(0.0, call(1, 5)) == [AnswerCall(1, tuple(f"c1.{i}:queue_full" for i in range(5)))]
    assert q.step(0.0, call(2, 4)) == [RunBatch(1, ("C2.0", "C2.1"))]  # exactly as much as may queue
    assert q.step(0.0, call(3, 3)) == [AnswerCall(3, tuple(f"c3.{i}:queue_full" for i in range(3)))]
    assert q.step(0.0, call(4, 2)) == []  # two items of the second call wait, and these
    assert q.step(0.0, call(5, 1)) == [AnswerCall(5, ("c5.0:queue_full",))]


def test_the_next_batch_fills_from_several_calls_and_splits_the_last() -> None:
    q = queue(max_batch=3)
    q.step(0.0, call(1, 1))
    q.step(0.0, call(2, 2))
    q.step(0.0, call(3, 2))
    answered, batch = q.step(0.01, BatchReturned(1, ("a",)))
    assert (answered, batch) == (AnswerCall(1, ("c1.0=a",)), RunBatch(2, ("C2.0", "C2.1", "C3.0")))
    assert q.step(0.02, BatchReturned(2, ("a", "b", "c"))) == [
        AnswerCall(2, ("c2.0=a", "c2.1=b")),
        RunBatch(3, ("C3.1",)),
    ]
    assert q.step(0.03, BatchReturned(3, ("d",))) == [AnswerCall(3, ("c3.0=c", "c3.1=d"))]


def test_a_call_larger_than_a_batch_is_not_split_but_has_one_of_its_own() -> None:
    q = queue(max_batch=3, split=False)
    assert q.step(0.0, call(1, 5)) == [RunBatch(1, tuple(f"C1.{i}" for i in range(5)))]
    q.step(0.0, call(2, 1))
    q.step(0.0, call(3, 2))
    assert q.step(0.01, BatchReturned(1, tuple("abcde")))[1:] == [RunBatch(2, ("C2.0", "C3.0", "C3.1"))]


def test_results_of_another_number_than_rows_are_not_used() -> None:
    for results in ((), ("a",), ("a", "b", "c")):
        q = queue()
        q.step(0.0, call(1, 2))
        assert q.step(0.01, BatchReturned(1, results)) == [AnswerCall(1, ("c1.0:invalid", "c1.1:invalid"))]


def test_what_comes_of_another_batch_is_ignored() -> None:
    q = queue()
    assert q.step(0.0, BatchReturned(0, ())) == []
    q.step(0.0, call(1, 1))
    assert q.step(0.01, BatchReturned(2, ("x",))) == []
    assert q.step(0.01, BatchReturned(0, ("x",))) == []
    assert q.step(0.02, BatchReturned(1, ("a",))) == [AnswerCall(1, ("c1.0=a",))]
    assert q.step(0.03, BatchReturned(1, ("a",))) == []


def test_a_call_is_late_at_its_deadline_and_its_results_are_passed_over_in_the_batch() -> None:
    q = queue(max_batch=3)
    q.step(0.0, call(1, 1))
    q.step(0.01, call(2, 1))
    q.step(0.02, call(3, 1))
    assert q.step(BUDGET_S - 0.001, TimerTicked()) == []
    assert q.step(BUDGET_S, TimerTicked()) == [AnswerCall(1, ("c1.0:late",))]
    assert q.step(0.055, BatchReturned(1, ("a",))) == [RunBatch(2, ("C2.0", "C3.0"))]
    assert q.step(0.01 + BUDGET_S, TimerTicked()) == [AnswerCall(2, ("c2.0:late",))]
    assert q.step(0.065, BatchReturned(2, ("b", "c"))) == [AnswerCall(3, ("c3.0=c",))]


def test_a_late_call_that_waits_is_never_begun() -> None:
    q = queue(max_batch=1)
    q.step(0.0, call(1, 1))
    q.step(0.0, call(2, 1))
    q.step(0.04, call(3, 1))
    late = [AnswerCall(number, (f"c{number}.0:late",)) for number in (1, 2)]
    assert q.step(BUDGET_S, TimerTicked()) == late
    assert q.step(0.06, BatchReturned(1, ("a",))) == [RunBatch(2, ("C3.0",))]


STEPS = st.lists(
    st.tuples(st.sampled_from(["call", "return", "short", "fail", "stale", "tick"]), st.integers(0, 5)), max_size=60
)


@pytest.mark.parametrize("split", [True, False])
@given(steps=STEPS)
def test_every_call_is_answered_once_in_its_order_and_in_time(steps: list[tuple[str, int]], split: bool) -> None:
    q, now_s, number = queue(split=split), 0.0, 0
    running: RunBatch[str] | None = None
    open_calls: dict[int, tuple[tuple[str, ...], float]] = {}
    outcomes: dict[str, str] = {}  # by row: what became of the batch that it was in

    def apply(event: Any) -> None:
        nonlocal running
        otherwise = ":queue_full" if isinstance(event, CallReceived) else ":late"
        for effect in q.step(now_s, event):
            if isinstance(effect, RunBatch):
                assert running is None
                assert {int(row[1:].split(".")[0]) for row in effect.rows} <= set(open_calls)  # not of ended calls
                alone = len({row.split(".")[0] for row in effect.rows}) == 1
                assert len(effect.rows) <= (5 if alone and not split else 3)
                running = effect
            else:
                items, _ = open_calls.pop(effect.call)
                assert effect.answers == tuple(item + outcomes.get(item.upper(), otherwise) for item in items)

    def end_batch(event: Any) -> None:
        nonlocal running
        assert running is not None
        for row in running.rows:
            full = isinstance(event, BatchReturned) and len(event.results) == len(running.rows)
            outcomes[row] = f"={row}" if full else ":failed" if isinstance(event, BatchFailed) else ":invalid"
        running = None
        apply(event)

    for kind, n in steps:
        now_s += n / 100
        if kind == "call":
            number += 1
            event = call(number, n)
            open_calls[number] = (event.items, now_s + BUDGET_S)
            apply(event)
        elif kind == "tick":
            apply(TimerTicked())
            assert all(deadline_s > now_s for _, deadline_s in open_calls.values())
        elif kind == "stale":
            apply(BatchReturned((running.batch if running is not None else 0) - 1, ("x",)))
        elif running is not None:
            rows = len(running.rows)
            results = running.rows[: rows - (kind == "short")]
            end_batch(BatchFailed(running.batch, "boom") if kind == "fail" else BatchReturned(running.batch, results))
        assert running is not None or not open_calls  # the model is never idle while a call is open
    while running is not None:
        end_batch(BatchReturned(running.batch, running.rows))
    assert not open_calls

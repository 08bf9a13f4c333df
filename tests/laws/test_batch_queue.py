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


STEPS = st.lists(
    st.tuples(st.sampled_from(["call", "return", "short", "fail", "stale", "tick"]), st.integers(0, 5)), max_size=60
)


@pytest.mark.parametrize("split", [True, False])
@given(steps=STEPS)
def test_every_call_is_answered_once_in_its_order_and_in_time(steps: list[tuple[str, int]], split: bool) -> None:
    q, now_s, number = queue(split=split), 0.0, 0
    running: RunBatch[str] | None = None
    open_calls: dict[int, tuple[tuple[str, ...], float]] = {}

    def apply(event: Any) -> None:
        nonlocal running
        for effect in q.step(now_s, event):
            if isinstance(effect, RunBatch):
                assert running is None
                assert {int(row[1:].split(".")[0]) for row in effect.rows} <= set(open_calls)  # not of ended calls
                assert len(effect.rows) <= 3 or (not split and len({row.split(".")[0] for row in effect.rows}) == 1)
                running = effect
            else:
                items, _ = open_calls.pop(effect.call)
                for item, answer in zip(items, effect.answers, strict=True):
                    assert answer == f"{item}={item.upper()}" or answer.startswith(f"{item}:")

    def end_batch(event: Any) -> None:
        nonlocal running
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

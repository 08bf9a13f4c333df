"""The ring of past requests: what it holds, what it forgets, and that a new owner goes on from it."""

from dataclasses import replace

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.past import OPEN_FROM, PastBlock
from hmas.contracts.request import Slo, TagSource, TaskType
from hmas.contracts.telemetry import FirstTokenSeen, RequestOffered, RequestQueued, RequestSettled
from hmas.laws.request_rows import MAX_BLOCK_ROWS, unpack
from hmas.laws.scoring import verdict
from hmas.qos.agent.past_requests import PastConfig, PastRequests
from tests.builders.telemetry import first_token_seen, request_queued

CONFIG = PastConfig(window_s=600.0, block_s=60.0, keep_every_s=10.0)


def offered(name: str, age_s: float = 0.0) -> RequestOffered:
    return RequestOffered(
        request_id=name, tenant="a", prompt_tokens=100, age_s=age_s, max_tokens=64, slo=Slo(4.0, 0.07), job="j",
    )  # fmt: skip


def ended(name: str, **changes: object) -> RequestSettled:
    values: dict[str, object] = {
        "request_id": name, "tenant": "a", "task": TaskType.QA, "outcome": Outcome.FINISHED, "slo": Slo(4.0, 0.07),
        "prompt_tokens": 101, "output_tokens": 50, "predicted_output_tokens": 60.0, "ttft_s": 1.0, "tpot_s": 0.05,
        "last_token_s": 3.45, "relegated": False, "age_s": 0.0, "predicted_output_tokens_p90": 90.0,
        "confidence": 0.8, "tagged_by": TagSource.MODEL,
    }  # fmt: skip
    return RequestSettled(**{**values, **changes})  # type: ignore[arg-type]


def serve(past: PastRequests, at_s: float, name: str) -> None:
    past.offered(at_s - 4.0, offered(name))
    past.settled(at_s, ended(name))


def arrivals(now_s: float, blocks: list[PastBlock]) -> list[float]:
    """When the rows of blocks came, on the clock of `now_s`."""
    return [round(now_s - block.age_s + row.arrival_s, 3) for block in blocks for row in unpack(block.rows)]


def test_a_request_is_told_as_it_came_and_ended() -> None:
    past = PastRequests(CONFIG)
    past.topology = "edf"
    past.offered(10.0, offered("r", age_s=0.5))
    past.topology = "sjf"
    (waiting,) = past.since(11.0, 60.0)
    assert waiting.number == OPEN_FROM
    assert unpack(waiting.rows)[0].outcome is None
    past.settled(14.0, ended("r"))
    (block,) = past.since(15.0, 60.0)
    (row,) = unpack(block.rows)
    assert arrivals(15.0, [block]) == [9.5]
    assert (row.topology, row.job, row.max_tokens, row.prompt_tokens) == ("edf", "j", 64, 101)
    assert (row.outcome, row.output_tokens, row.tagged_by, row.confidence) == (
        Outcome.FINISHED, 50, TagSource.MODEL, 0.8,
    )  # fmt: skip
    assert (row.predicted_output_tokens, row.predicted_output_tokens_p90) == (60.0, 90.0)
    assert row.on_time


def test_a_request_that_its_client_withdrew_is_judged_by_how_long_it_had_waited() -> None:
    past = PastRequests(CONFIG)
    for name, withdrawn_s in (("a", 4.0), ("b", 4.25)):
        past.offered(10.0, offered(name))
        left = {"ttft_s": None, "tpot_s": None, "last_token_s": None, "output_tokens": 0, "withdrawn_s": withdrawn_s}
        past.settled(15.0, ended(name, outcome=Outcome.CANCELLED, **left))
    (block,) = past.since(15.0, 60.0)
    assert [verdict(row.settled()).judged for row in unpack(block.rows)] == [False, True]


def queued(name: str) -> RequestQueued:
    return request_queued(name, predicted_output_tokens=55.0, predicted_output_tokens_p90=80.0, tpot_slo_s=0.09)


def first_token(name: str, ttft_s: float) -> FirstTokenSeen:
    return first_token_seen(name, ttft_s=ttft_s, ttft_slo_s=2.0)


@pytest.mark.parametrize("worker_first", [False, True])
def test_what_workers_tell_of_a_request_that_runs_is_told_before_its_end(worker_first: bool) -> None:
    past = PastRequests(CONFIG)
    if not worker_first:
        past.offered(10.0, offered("r"))
    past.hear(queued("r"))
    past.hear(first_token("r", 2.5))
    if worker_first:
        assert past.since(11.0, 60.0) == []
        past.offered(10.0, offered("r"))
    (block,) = past.since(11.0, 60.0)
    (row,) = unpack(block.rows)
    assert (row.outcome, row.ttft_s, row.slo) == (None, 2.5, Slo(2.0, 0.09))
    assert (row.task, row.tagged_by, row.predicted_output_tokens, row.predicted_output_tokens_p90) == (
        TaskType.QA, TagSource.MODEL, 55.0, 80.0,
    )  # fmt: skip
    past.settled(14.0, ended("r"))
    (block,) = past.since(15.0, 60.0)
    (row,) = unpack(block.rows)
    assert row.ttft_s == 1.0  # as its client saw it
    assert row.predicted_output_tokens == 55.0  # as its worker went by


def test_of_requests_that_no_gateway_tells_little_is_kept() -> None:
    past = PastRequests(replace(CONFIG, max_early=3))
    for i in range(5):
        past.hear(first_token(f"r{i}", 1.0))
    for i in range(5):
        past.offered(10.0, offered(f"r{i}"))
    (block,) = past.since(11.0, 60.0)
    assert [row.ttft_s for row in unpack(block.rows)] == [None, None, 1.0, 1.0, 1.0]


def test_blocks_are_kept_as_they_grow_and_when_they_are_full() -> None:
    past = PastRequests(CONFIG)
    assert past.to_keep(0.0) is None
    kept = []
    for i in range(70):
        serve(past, float(i), f"r{i}")
        if (block := past.to_keep(float(i))) is not None:
            kept.append((i, block.number, len(unpack(block.rows))))
    assert kept == [(0, 0, 1), (10, 0, 11), (20, 0, 21), (30, 0, 31), (40, 0, 41), (50, 0, 51), (60, 0, 61)]
    for i in range(MAX_BLOCK_ROWS):
        serve(past, 70.0, f"s{i}")
    block = past.to_keep(70.0)
    assert block is not None
    assert (block.number, len(unpack(block.rows))) == (1, MAX_BLOCK_ROWS + 9)


def test_what_is_too_old_or_too_much_is_forgotten() -> None:
    past = PastRequests(CONFIG)
    for i in range(900):
        serve(past, float(i), f"r{i}")
        past.to_keep(float(i))
    assert min(arrivals(899.0, past.since(899.0, 1e9))) >= 899.0 - CONFIG.window_s - CONFIG.block_s - 4.0
    small = PastRequests(PastConfig(max_bytes=20_000, max_open=50))
    for i in range(30_000):  # a third more than reach the bound
        serve(small, i / 50.0, f"r{i}")
        small.offered(i / 50.0, offered(f"open{i}"))
        small.to_keep(i / 50.0)
        assert small.size <= 20_000 + 64 * 1024
    left = small.since(600.0, 1e9)
    assert sum(len(unpack(block.rows)) for block in left if block.number >= OPEN_FROM) == 50


def test_only_the_blocks_of_the_time_asked_for_come_and_from_the_number_asked_for() -> None:
    past = PastRequests(CONFIG)
    for i in range(300):
        serve(past, float(i), f"r{i}")
        past.to_keep(float(i))
    everything = arrivals(300.0, past.since(300.0, 1e9))
    assert len(everything) == 300
    late = arrivals(300.0, past.since(300.0, 70.0))
    assert {at for at in everything if at >= 230.0} <= set(late)
    assert len(late) < 200
    numbers = [block.number for block in past.since(300.0, 1e9)]
    assert numbers == sorted(numbers)
    assert [block.number for block in past.since(300.0, 1e9, numbers[2])] == numbers[2:]


def test_a_new_owner_goes_on_from_what_was_kept() -> None:
    old, kept = PastRequests(CONFIG), dict[int, PastBlock]()
    for i in range(100):
        serve(old, float(i), f"r{i}")
        if (block := old.to_keep(float(i))) is not None:
            kept[block.number] = block
    new = PastRequests(CONFIG)
    serve(new, 5.0, "young")
    aged = [PastBlock(number=b.number, age_s=b.age_s + 20.0, span_s=b.span_s, rows=b.rows) for b in kept.values()]
    new.restore(5.0, aged)
    told = new.since(5.0, 1e9)
    assert [block.number for block in told] == [0, 1, 2]
    assert len(arrivals(5.0, told)) >= 92
    assert arrivals(5.0, told)[-1] == 1.0
    serve(new, 70.0, "next")
    following = new.to_keep(70.0)
    assert following is not None
    assert following.number == 2


def test_an_empty_ring_holds_nothing_and_restores_in_order() -> None:
    past = PastRequests(CONFIG)
    assert (past.size, past.since(0.0, 1e9)) == (0, [])
    serve(past, 1.0, "r")
    assert past.size == 0  # it is not packed yet
    block = past.to_keep(61.0)
    assert block is not None
    assert past.size == len(block.rows)
    assert past.to_keep(200.0) is None  # nothing has ended since
    serve(past, 200.0, "s")
    assert past.to_keep(200.0) is not None


@pytest.mark.parametrize(("task", "confidence"), [(TaskType.QA, 1.0), (TaskType.UNKNOWN, 0.0)])
def test_only_a_known_task_type_is_perceptions_own(task: TaskType, confidence: float) -> None:
    past = PastRequests(CONFIG)
    past.offered(10.0, offered("r"))
    past.hear(replace(queued("r"), task=task))
    (row,) = unpack(past.since(11.0, 60.0)[0].rows)
    assert (row.confidence, row.tagged_by) == (confidence, TagSource.MODEL if confidence else None)


def test_what_has_not_ended_is_told_in_blocks_whose_numbers_rise() -> None:
    past = PastRequests(CONFIG)
    for i in range(2 * MAX_BLOCK_ROWS + 1):
        past.offered(10.0, offered(f"r{i}"))
    told = past.since(10.0, 60.0)
    assert [block.number for block in told] == [OPEN_FROM, OPEN_FROM + 1, OPEN_FROM + 2]
    assert [len(unpack(block.rows)) for block in told] == [MAX_BLOCK_ROWS, MAX_BLOCK_ROWS, 1]
    assert [block.number for block in past.since(10.0, 60.0, OPEN_FROM + 1)] == [OPEN_FROM + 1, OPEN_FROM + 2]


def test_what_was_packed_before_the_kept_blocks_came_follows_them() -> None:
    past = PastRequests(CONFIG)
    for i in range(MAX_BLOCK_ROWS):
        serve(past, 70.0, f"r{i}")
    own = past.to_keep(70.0)
    assert own is not None
    serve(past, 71.0, "growing")
    rows = own.rows
    past.restore(80.0, [PastBlock(number=n, age_s=90.0, span_s=5.0, rows=rows) for n in (4, 3)])
    told = past.since(80.0, 1e9)
    assert [block.number for block in told] == [3, 4, 5, 6]
    assert past.size == 3 * len(rows)
    assert set(arrivals(80.0, told[2:3])) == {66.0}
    assert arrivals(80.0, told[3:]) == [67.0]


def test_a_block_is_told_as_long_as_its_last_request_ended_within_the_time_asked_for() -> None:
    past = PastRequests(CONFIG)
    past.offered(0.0, offered("served"))
    past.settled(8.0, ended("served", last_token_s=8.0))
    past.offered(10.0, offered("refused"))
    past.settled(10.0, ended("refused", ttft_s=None, tpot_s=None, last_token_s=None))
    assert past.to_keep(68.0) is not None
    assert [len(past.since(now_s, 60.0)) for now_s in (69.0, 70.0, 70.25)] == [1, 1, 0]
    (block,) = past.since(69.0, 60.0)
    assert (block.age_s, block.span_s) == (69.0, 10.0)


def test_what_has_not_ended_is_forgotten_once_it_came_before_the_window() -> None:
    past = PastRequests(replace(CONFIG, window_s=50.0))
    for at_s in (10.0, 20.0):
        past.offered(at_s, offered(f"r{at_s}"))
    past.to_keep(60.0)
    assert arrivals(60.0, past.since(60.0, 1e9)) == [10.0, 20.0]
    past.to_keep(60.25)
    assert arrivals(60.25, past.since(60.25, 1e9)) == [20.0]

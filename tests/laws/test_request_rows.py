"""Rows of past requests survive packing, and what is none of them is refused."""

import zlib
from dataclasses import replace
from math import inf, nan
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TagSource, TaskType
from hmas.laws.request_rows import MAX_BLOCK_CHARS, RequestRow, RowError, pack, parse_row, row_line, unpack

ROW = RequestRow(arrival_s=1.5, tenant="a", prompt_tokens=10, slo=Slo(4.0, 0.07))
LATENCY = st.none() | st.floats(0.0, 1e6)
ROWS = st.builds(
    RequestRow,
    arrival_s=st.floats(-1e6, 1e6),
    tenant=st.text(st.characters(codec="utf-8"), max_size=8),
    prompt_tokens=st.integers(0, 2**32),
    slo=st.builds(
        Slo, st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.none() | st.floats(1e-3, 1e6), st.booleans()
    ),
    max_tokens=st.none() | st.integers(0, 2**32),
    stream=st.booleans(),
    stated=st.booleans(),
    task=st.sampled_from(TaskType),
    tagged_by=st.none() | st.sampled_from(TagSource),
    outcome=st.none() | st.sampled_from(Outcome),
    output_tokens=st.integers(0, 2**32),
    ttft_s=LATENCY,
    tpot_s=LATENCY,
    last_token_s=LATENCY,
)  # fmt: skip


@given(st.lists(ROWS, max_size=5))
def test_rows_survive_packing(rows: list[RequestRow]) -> None:
    assert unpack(pack(rows)) == rows


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"{}", b"not JSON", row_line(ROW).replace(b"4.0", b"-4.0"), row_line(ROW).replace(b"10", b"-1"),
        row_line(ROW).replace(b'"a"', b"7"), row_line(ROW).replace(b'"tenant"', b'"text"'),
        row_line(ROW).replace(b"1.5", b"null"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(RowError):
        parse_row(line)


@pytest.mark.parametrize("block", [b"", b"x", pack([ROW])[:-5], zlib.compress(b" " * (MAX_BLOCK_CHARS + 1))])
def test_what_is_no_block_is_refused(block: bytes) -> None:
    with pytest.raises(RowError):
        unpack(block)


def test_only_a_request_that_ended_in_time_is_on_time() -> None:
    late = RequestRow(
        arrival_s=0.0, tenant="a", prompt_tokens=1, slo=Slo(1.0, 0.1), outcome=Outcome.FINISHED, output_tokens=2,
        ttft_s=2.0, tpot_s=0.05, last_token_s=2.05,
    )  # fmt: skip
    soon = RequestRow(
        arrival_s=0.0, tenant="a", prompt_tokens=1, slo=Slo(1.0, 0.1), outcome=Outcome.FINISHED, output_tokens=2,
        ttft_s=0.5, tpot_s=0.05, last_token_s=0.55,
    )  # fmt: skip
    assert (ROW.on_time, late.on_time, soon.on_time) == (False, False, True)


def line(**changes: Any) -> bytes:
    """A row's line with fields of it written anew."""
    return orjson.dumps(orjson.loads(row_line(ROW)) | changes)


LIMITS: list[tuple[str, Any, Any]] = [
    ("tenant", "a" * 512, "a" * 513), ("model", "a" * 512, "a" * 513), ("job", "a" * 512, "a" * 513),
    ("topology", "a" * 512, "a" * 513), ("prompt_tokens", 0, -1), ("prompt_tokens", 2**32, 2**32 + 1),
    ("output_tokens", 0, -1), ("output_tokens", 2**32, 2**32 + 1), ("weight", 1e9, 1.001e9), ("weight", 1e-9, 0.0),
    ("importance", -60.0, -60.001), ("confidence", 1e9, 1.001e9), ("predicted_output_tokens", 1e9, 1.001e9),
    ("predicted_output_tokens_p90", -60.0, -60.001), ("ttft_s", -60.0, -60.001), ("tpot_s", 1e9, 1.001e9),
    ("last_token_s", 1e9, 1.001e9), ("priority", 2**31, 2**31 + 1), ("priority", -(2**31), -(2**31) - 1),
    ("max_tokens", 0, -1), ("max_tokens", 2**32, 2**32 + 1),
    ("slo", {"ttft_s": 1e9, "tpot_s": 0.1}, {"ttft_s": 1.001e9, "tpot_s": 0.1}),
    ("slo", {"ttft_s": 1.0, "tpot_s": 1e-9}, {"ttft_s": 1.0, "tpot_s": 0.0}),
    ("slo", {"ttft_s": 1.0, "tpot_s": 0.1, "ttlt_s": 1e-9}, {"ttft_s": 1.0, "tpot_s": 0.1, "ttlt_s": 0.0}),
    ("slo", {"ttft_s": 1.0, "tpot_s": 0.1, "ttlt_s": 1e9}, {"ttft_s": 1.0, "tpot_s": 0.1, "ttlt_s": -1.0}),
    ("task", TaskType.QA.value, "chess"), ("task", TaskType.QA.value, 5), ("tagged_by", None, "nobody"),
    ("outcome", "finished", "won"),
    ("prompt_tokens", 5, 5.5), ("tenant", "", None), ("importance", 0.5, "x"), ("slo", {"ttft_s": 1, "tpot_s": 1}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "least", "beyond"), LIMITS)
def test_a_value_at_its_limit_is_read_and_one_beyond_is_refused(name: str, least: Any, beyond: Any) -> None:
    read = parse_row(line(**{name: least}))
    assert getattr(read, name) == (Slo(**least) if name == "slo" else least)
    with pytest.raises(RowError):
        parse_row(line(**{name: beyond}))


@pytest.mark.parametrize("arrival_s", [inf, -inf, nan])
def test_an_arrival_that_is_no_instant_is_refused(arrival_s: float) -> None:
    with pytest.raises(RowError):
        parse_row(row_line(replace(ROW, arrival_s=arrival_s)))


def test_what_is_unknown_is_named_in_the_error() -> None:
    more = {f"x{number}": number for number in range(7)}
    with pytest.raises(RowError, match=r"unknown fields x0, x1, x2, x3, x4$"):
        parse_row(line(**more))


def test_a_line_holds_what_differs_from_the_defaults() -> None:
    assert orjson.loads(row_line(ROW)) == {
        "arrival_s": 1.5, "tenant": "a", "prompt_tokens": 10, "slo": {"ttft_s": 4.0, "tpot_s": 0.07},
    }  # fmt: skip
    assert row_line(ROW).endswith(b"}\n")
    told = orjson.loads(row_line(replace(ROW, slo=Slo(4.0, 0.07, 9.0, True), stream=False, output_tokens=3)))
    assert told["slo"] == {"ttft_s": 4.0, "tpot_s": 0.07, "ttlt_s": 9.0, "whole": True}
    assert (told["stream"], told["output_tokens"]) == (False, 3)


def test_with_an_origin_arrivals_count_from_it_to_a_tenth_of_a_millisecond() -> None:
    (row,) = unpack(pack([replace(ROW, arrival_s=101.23456)], 100.0))
    assert row.arrival_s == 1.2346
    (same,) = unpack(pack([replace(ROW, arrival_s=101.23456)]))
    assert same.arrival_s == 101.23456
    (zero,) = unpack(pack([replace(ROW, arrival_s=101.23456)], 0.0))
    assert zero.arrival_s == 101.2346


def test_a_block_of_the_most_bytes_is_read() -> None:
    assert len(unpack(pack([ROW] * 3))) == 3
    one = row_line(ROW)
    padded = one[:-1] + b" " * (MAX_BLOCK_CHARS - len(one)) + b"\n"
    assert unpack(zlib.compress(padded)) == [ROW]


def test_a_row_is_judged_as_it_was_settled() -> None:
    row = replace(
        ROW, task=TaskType.QA, outcome=Outcome.FINISHED, output_tokens=9, predicted_output_tokens=7.0, ttft_s=1.0,
        tpot_s=0.05, last_token_s=1.4,
    )  # fmt: skip
    told = row.settled()
    for name in ("tenant", "task", "outcome", "slo", "prompt_tokens", "output_tokens", "predicted_output_tokens",
                 "ttft_s", "tpot_s", "last_token_s"):  # fmt: skip
        assert getattr(told, name) == getattr(row, name)
    assert (told.relegated, told.age_s) == (False, 0.0)
    with pytest.raises(ValueError, match="has not ended"):
        ROW.settled()

"""Rows of past requests survive packing, and what is none of them is refused."""

import zlib

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

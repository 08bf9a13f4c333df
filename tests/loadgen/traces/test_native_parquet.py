"""Our own format: what is written is read back."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hmas.contracts.request import Slo, TaskType
from hmas_loadgen.traces.native import write_parquet
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.row import Trace, TraceError, TraceRow

ROWS = (
    TraceRow(
        arrival_s=0.0,
        input_tokens=12,
        output_tokens=3,
        hash_ids=(1, 2**40),
        prompt="Say hello",
        task=TaskType.DIALOGUE,
        slo=Slo(3.2, 0.056),
        tenant="acme",
        importance=0.9,
    ),
    TraceRow(arrival_s=1.25, input_tokens=7, output_tokens=1, slo=Slo(1.0, 0.05, 2.5)),
)


def test_parquet_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "annotated.parquet"
    write_parquet(Trace(name="t", rows=ROWS), path)
    assert read_trace(path).rows == ROWS


def test_csv_with_optional_columns(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(
        "arrival_s,input_tokens,output_tokens,hash_ids,prompt,task_type,ttft_ms,tpot_ms,tenant\n"
        '0,3,1,4 5,"Hello, you",QA,4000,70,acme\n'
        "1,2,1,,,,,,\n"
    )
    first, second = read_trace(path).rows
    assert first == TraceRow(
        arrival_s=0.0,
        input_tokens=3,
        output_tokens=1,
        hash_ids=(4, 5),
        prompt="Hello, you",
        task=TaskType.QA,
        slo=Slo(4.0, 0.07),
        tenant="acme",
    )
    assert second == TraceRow(arrival_s=1.0, input_tokens=2, output_tokens=1)


def test_parquet_without_the_columns_says_which(tmp_path: Path) -> None:
    pq.write_table(pa.table({"arrival_s": [0.0]}), tmp_path / "x.parquet")
    with pytest.raises(TraceError, match="columns input_tokens, output_tokens are missing"):
        read_trace(tmp_path / "x.parquet")


def test_a_file_that_only_begins_like_parquet(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(TraceError, match="not readable as Parquet"):
        read_trace(tmp_path / "x.parquet")

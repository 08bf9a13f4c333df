"""Each published format: what a good file yields, and what a bad line says."""

import gzip
import os
from pathlib import Path

import pytest

from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.row import TraceError, TraceRow

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
MOONCAKE = '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n'
BAILIAN = (
    '{"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 521, "output_length": 132, '
    '"type": "text", "turn": 2, "hash_ids": [1089, 1090]}\n'
)
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def write(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_azure_2023_keeps_100_ns_and_needs_no_last_line_end(tmp_path: Path) -> None:
    path = write(tmp_path, AZURE + "2023-11-16 18:17:04.0319601,3180,8")
    assert read_trace(path).rows == (
        TraceRow(arrival_s=0.0, input_tokens=4808, output_tokens=10),
        TraceRow(arrival_s=0.0520001, input_tokens=3180, output_tokens=8),
    )


def test_azure_2024_has_a_zone_and_days(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 23:59:59.5+00:00,1,1\n"
        "2024-05-11T02:00:01+02:00,2,2\n"
        "2024-05-11 00:00:02Z,3,3\n"
    )
    assert [row.arrival_s for row in read_trace(write(tmp_path, text)).rows] == [0.0, 1.5, 2.5]


def test_azure_2025_multimodal_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "multimodal.csv.gz"
    text = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.1,2,900,30\n"
    path.write_bytes(gzip.compress(text.encode()))
    assert read_trace(path).rows == (TraceRow(arrival_s=0.0, input_tokens=900, output_tokens=30),)


def test_mooncake_is_in_milliseconds_with_512_token_blocks(tmp_path: Path) -> None:
    path = write(tmp_path, MOONCAKE + MOONCAKE.replace("27482", "27982"), "x.jsonl")
    trace = read_trace(path)
    assert trace.rows == (
        TraceRow(arrival_s=0.0, input_tokens=6955, output_tokens=52, hash_ids=(46, 47)),
        TraceRow(arrival_s=0.5, input_tokens=6955, output_tokens=52, hash_ids=(46, 47)),
    )
    assert trace.block_tokens == 512


def test_bailian_is_in_seconds_with_16_token_blocks(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, BAILIAN, "x.jsonl"))
    assert trace.rows == (TraceRow(arrival_s=0.0, input_tokens=521, output_tokens=132, hash_ids=(1089, 1090)),)
    assert trace.block_tokens == 16


@pytest.mark.parametrize("extra", ["", "Session ID,Elapsed time,"])
def test_burstgpt_leaves_out_failures_and_says_how_many(tmp_path: Path, extra: str) -> None:
    cells = "7,8," if extra else ""
    header = BURSTGPT.replace("Timestamp,", "Timestamp," + extra)
    text = f"{header}5,{cells}ChatGPT,472,18,490,Conversation log\n45,{cells}GPT-4,1087,0,1087,API log\n"
    trace = read_trace(write(tmp_path, text))
    assert trace.rows == (TraceRow(arrival_s=0.0, input_tokens=472, output_tokens=18),)
    assert trace.note == "1 failed requests of unknown length left out"


def test_rows_out_of_order_are_sorted_and_start_at_zero(tmp_path: Path) -> None:
    path = write(tmp_path, "arrival_s,input_tokens,output_tokens\n3.5,1,1\n1.5,2,2\n")
    assert read_trace(path).rows == (
        TraceRow(arrival_s=0.0, input_tokens=2, output_tokens=2),
        TraceRow(arrival_s=2.0, input_tokens=1, output_tokens=1),
    )


def test_a_zero_length_counts_as_one_token(tmp_path: Path) -> None:
    assert read_trace(write(tmp_path, "arrival_s,input_tokens,output_tokens\n0,0,0\n")).rows == (
        TraceRow(arrival_s=0.0, input_tokens=1, output_tokens=1),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            AZURE + "2023-11-16 18:17:04.03,31x,8\r\n",
            "trace.csv, line 3: field 'ContextTokens' is not a number: '31x'. Correct or remove that line, or fetch "
            "the file again",
        ),
        (AZURE + "2023-11-16 18:17:04.03,3180\r\n", "line 3: the line has 2 fields, but the header 3 (TIMESTAMP,"),
        (
            AZURE + "yesterday,3180,8\r\n",
            "line 3: TIMESTAMP is not 'YYYY-MM-DD hh:mm:ss[.fraction][zone]': 'yesterday'",
        ),
        (AZURE + "2023-13-16 18:17:04,3180,8\r\n", "line 3: TIMESTAMP '2023-13-16 18:17:04': month must be in 1..12"),
        (AZURE + "2023-11-16 18:17:04.03,-1,8\r\n", "field 'ContextTokens' must be finite and not negative: '-1'"),
        (AZURE + "2023-11-16 18:17:04.03,1.5,8\r\n", "'ContextTokens' is not a whole number of tokens: '1.5'"),
        (
            MOONCAKE + "{oops}\n",
            "line 2: the line is not JSON (Expecting property name enclosed in double quotes, column 2)",
        ),
        (MOONCAKE + "[1]\n", "line 2: the line must be a JSON object, not list"),
        (MOONCAKE + MOONCAKE.replace("[46, 47]", '["a"]'), "line 2: field 'hash_ids' must be whole numbers: \"['a']\""),
        (MOONCAKE + '{"timestamp": 1, "input_length": 5}\n', "line 2: field 'output_length' is missing"),
        (BURSTGPT + "5,ChatGPT,nan,18,490,log\n", "line 2: field 'Request tokens' must be finite and not negative"),
        (
            "time,in,out\n1,2,3\n",
            "line 1: the header is not known: 'time,in,out'. Known formats: Azure 2023/2024/2025 CSV",
        ),
        ('{"ts": 1}\n', "line 1: the fields timestamp and input_length are missing"),
        ("", "line 1: the file is empty"),
        ("arrival_s,input_tokens,output_tokens\n", "the trace has no requests"),
        (
            "arrival_s,input_tokens,output_tokens,task_type\n0,1,1,Poetry\n",
            "line 2: field 'task_type' is unknown: 'Poetry' (known: QA",
        ),
    ],
)
def test_a_malformed_line_names_file_line_and_reason(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert expected in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_broken_gzip_and_wrong_encoding_say_so(tmp_path: Path) -> None:
    packed = gzip.compress((AZURE * 200).encode())
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceError, match="the gzip data is broken"):
        read_trace(tmp_path / "cut.csv.gz")
    (tmp_path / "latin.csv").write_bytes(b"arrival_s,input_tokens,output_tokens,prompt\n0,1,1,\xe9t\xe9\n")
    with pytest.raises(TraceError, match="not UTF-8"):
        read_trace(tmp_path / "latin.csv")


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no such file\. Check the path, or fetch a trace of 'hmas load traces list'"):
        read_trace(tmp_path / "nothing.csv")


# name, rows, duration_s, (input p50 rank value), block tokens: from the data's own README.
REAL = [
    ("AzureLLMInferenceTrace_code.first2000.csv", 2000, 853.0790),
    ("AzureLLMInferenceTrace_conv.first2000.csv", 2000, 424.2590),
    ("azure_2023_code.csv.gz", 7717, 2574.4600),
    ("azure_2023_conv.csv.gz", 15460, 2626.2700),
    ("mooncake_conversation_trace.first500.jsonl.gz", 500, 165.0),
    ("mooncake_fast25_conversation.csv.gz", 8125, 2475.0),
]


@pytest.mark.parametrize(("name", "rows", "duration_s"), REAL)
def test_real_files(name: str, rows: int, duration_s: float) -> None:
    data = os.environ.get("HMAS_DATA")
    if not data:
        pytest.skip("HMAS_DATA is not set: no real traces at hand")
    trace = read_trace(Path(data) / "traces" / name)
    assert len(trace.rows) == rows
    assert trace.duration_s == pytest.approx(duration_s, abs=0.01)
    assert all(row.hash_ids for row in trace.rows) == name.startswith("mooncake")

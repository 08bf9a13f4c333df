"""`read_trace` reads a trace of any known format. It recognises the format by the file's content, never by its name."""

import json
from collections.abc import Callable
from pathlib import Path

from hmas_loadgen.traces import azure, burstgpt, jsonl, native, servegen
from hmas_loadgen.traces.lines import open_lines
from hmas_loadgen.traces.row import Trace, TraceError

SERVEGEN_DURATION_S = 600.0
KNOWN = (
    "Azure 2023/2024/2025 CSV, Mooncake JSONL, Qwen-Bailian JSONL, BurstGPT CSV, ServeGen client rates, or CSV/Parquet "
    "with arrival_s,input_tokens,output_tokens"
)


def _json_reader(path: Path, line: str) -> Callable[[Path], Trace]:
    try:
        first = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(
            path, 1, f"the line is not JSON ({error.msg})", "Correct the line or fetch the file again"
        ) from None
    if not isinstance(first, dict) or "timestamp" not in first or "input_length" not in first:
        raise TraceError(path, 1, "the fields timestamp and input_length are missing", f"Known formats: {KNOWN}")
    return jsonl.read_bailian if "chat_id" in first else jsonl.read_mooncake


def _csv_reader(path: Path, line: str) -> Callable[[Path], Trace]:
    header = tuple(name.strip().lstrip("\ufeff") for name in line.split(","))
    if header in azure.HEADERS:
        return azure.read
    if burstgpt.COLUMNS.issubset(header):
        return burstgpt.read
    if set(native.REQUIRED).issubset(header):
        return native.read_csv
    raise TraceError(path, 1, f"the header is not known: '{line[:120]}'", f"Known formats: {KNOWN}")


def _generate(path: Path, seed: int, start_s: float, duration_s: float | None, rate_rps: float | None) -> Trace:
    rates = servegen.read(path)
    at = start_s or rates.busiest_start_s()
    return rates.generate(at, duration_s or SERVEGEN_DURATION_S, rate_rps, seed)


def read_trace(
    path: Path | str,
    *,
    seed: int = 0,
    start_s: float = 0.0,
    duration_s: float | None = None,
    rate_rps: float | None = None,
) -> Trace:
    """Reads a trace of any known format, plain or gzipped. Raises TraceError if it cannot be read.

    The options apply only to ServeGen client rates, from which requests are drawn: `start_s` 0 means the busiest
    window, `duration_s` None means 600 s, `rate_rps` None means the published rate.
    """
    path = Path(path)
    if not path.is_file():
        raise TraceError(path, None, "no such file", "Check the path, or fetch a trace of 'hmas load traces list'")
    with path.open("rb") as probe:
        magic = probe.read(4)
    if magic == b"PAR1":
        trace = native.read_parquet(path)
    else:
        line = next(iter(open_lines(path)), "")
        if not line.strip():
            raise TraceError(path, 1, "the file is empty", "Fetch it again")
        if line.split(",")[:3] == list(servegen.COLUMNS[:3]):
            trace = _generate(path, seed, start_s, duration_s, rate_rps)
        else:
            trace = (_json_reader if line.lstrip().startswith("{") else _csv_reader)(path, line)(path)
    if not trace.rows:
        raise TraceError(path, None, "the trace has no requests", "Fetch it again")
    return trace

"""Reads the BurstGPT trace (HPMLL/BurstGPT, CC-BY-4.0): columns `Timestamp` (s), `Request tokens`, `Response tokens`,
in either of two header variants."""

from pathlib import Path

from hmas_loadgen.traces.lines import csv_records
from hmas_loadgen.traces.row import Trace, TraceRow, from_zero

COLUMNS = frozenset({"Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"})


def read(path: Path) -> Trace:
    """Reads a file of either variant. A failed request has 0 response tokens; its true length is unknown, so it is left
    out and counted in the trace's note. Raises TraceError for a malformed line."""
    rows: list[TraceRow] = []
    failures = 0
    for record in csv_records(path):
        tokens_out = record.tokens("Response tokens")
        if tokens_out == 0:
            failures += 1
            continue
        rows.append(
            TraceRow(
                arrival_s=record.number("Timestamp"),
                input_tokens=max(1, record.tokens("Request tokens")),
                output_tokens=tokens_out,
            )
        )
    note = f"{failures} failed requests of unknown length left out" if failures else ""
    return Trace(name=path.name, rows=from_zero(rows), note=note)

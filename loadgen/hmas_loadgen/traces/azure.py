"""Reads the Azure LLM inference traces 2023 and 2024 and the multimodal trace 2025 (Azure/AzurePublicDataset,
CC-BY-4.0).

The columns are `TIMESTAMP,ContextTokens,GeneratedTokens`, in 2025 also `NumImages`. Images are not reproduced, but
their tokens are part of ContextTokens. Time stamps have up to 9 fractional digits (100 ns in 2023) and sometimes a time
zone.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

from hmas_loadgen.traces.lines import Record, csv_records
from hmas_loadgen.traces.row import Trace, TraceRow, from_zero

HEADERS = (
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    ("TIMESTAMP", "NumImages", "ContextTokens", "GeneratedTokens"),
)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")


def seconds(record: Record) -> tuple[int, float]:
    """Returns the field TIMESTAMP as whole seconds since the Unix epoch and a fraction; one float would lose the 100
    ns. Raises TraceError if the field has another form."""
    text = record.text("TIMESTAMP").strip()
    match = _STAMP.fullmatch(text)
    if match is None:
        raise record.error(f"TIMESTAMP is not 'YYYY-MM-DD hh:mm:ss[.fraction][zone]': {text!r}")
    date, time, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{time}{'' if zone in (None, 'Z') else zone}")
    except ValueError as error:
        raise record.error(f"TIMESTAMP {text!r}: {error}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp()), float(fraction or 0.0)


def read(path: Path) -> Trace:
    """Reads a file as published, plain or gzipped. Raises TraceError for a malformed line."""
    rows: list[TraceRow] = []
    origin: int | None = None
    for record in csv_records(path):
        whole, fraction = seconds(record)
        origin = whole if origin is None else origin
        tokens_in, tokens_out = record.tokens("ContextTokens"), record.tokens("GeneratedTokens")
        rows.append(
            TraceRow(
                arrival_s=round(whole - origin + fraction, 7),
                input_tokens=max(1, tokens_in),
                output_tokens=max(1, tokens_out),
            )
        )
    return Trace(name=path.name, rows=from_zero(rows))

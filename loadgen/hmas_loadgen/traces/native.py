"""Reads and writes the load generator's own trace format, CSV(.gz) or Parquet: `arrival_s,input_tokens,output_tokens`
and any of `hash_ids`, `prompt`, `task_type`, `importance`, `ttft_ms`, `tpot_ms`, `ttlt_ms`, `tenant` (H-MAS App. E.5's
annotated data set). Arrow is imported for Parquet only, because the simulator works without it."""

from collections.abc import Iterator
from pathlib import Path

from hmas.contracts.request import Slo, TaskType
from hmas_loadgen.traces.lines import Record, csv_records, hash_ids
from hmas_loadgen.traces.row import Trace, TraceError, TraceRow, from_zero

REQUIRED = ("arrival_s", "input_tokens", "output_tokens")


def _task(record: Record) -> TaskType | None:
    value = record.fields.get("task_type")
    if not value:
        return None
    try:
        return TaskType(str(value))
    except ValueError:
        known = ", ".join(TaskType)
        raise record.error(f"field 'task_type' is unknown: {str(value)!r} (known: {known})") from None


def _slo(record: Record) -> Slo | None:
    if not record.fields.get("ttft_ms") or not record.fields.get("tpot_ms"):
        return None
    ttlt_s = record.number("ttlt_ms") / 1000 if record.fields.get("ttlt_ms") else None
    return Slo(record.number("ttft_ms") / 1000, record.number("tpot_ms") / 1000, ttlt_s)


def _row(record: Record) -> TraceRow:
    importance = record.number("importance") if record.fields.get("importance") else None
    prompt, tenant = record.fields.get("prompt"), record.fields.get("tenant")
    return TraceRow(
        arrival_s=record.number("arrival_s"),
        input_tokens=max(1, record.tokens("input_tokens")),
        output_tokens=max(1, record.tokens("output_tokens")),
        hash_ids=hash_ids(record),
        prompt=str(prompt) if prompt else None,
        task=_task(record),
        slo=_slo(record),
        tenant=str(tenant) if tenant else None,
        importance=importance,
    )


def read_csv(path: Path) -> Trace:
    """Reads the CSV form. Raises TraceError for a malformed line."""
    return Trace(name=path.name, rows=from_zero([_row(record) for record in csv_records(path)]))


def _parquet_records(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise TraceError(path, None, f"the file is not readable as Parquet ({error})", "Write it again") from None
    missing = [name for name in REQUIRED if name not in file.schema_arrow.names]
    if missing:
        raise TraceError(path, None, f"columns {', '.join(missing)} are missing", f"It needs {', '.join(REQUIRED)}")
    number = 0
    for batch in file.iter_batches():
        for fields in batch.to_pylist():
            number += 1
            yield Record(path, number, fields)


def read_parquet(path: Path) -> Trace:
    """Reads the Parquet form. Raises TraceError for a malformed row, whose number from 1 stands for the line."""
    return Trace(name=path.name, rows=from_zero([_row(record) for record in _parquet_records(path)]))


def write_parquet(trace: Trace, path: Path) -> None:
    """Writes all rows with task type, importance, SLO and tenant as a Parquet file that `read_parquet` reads back."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = trace.rows
    slos = [row.slo for row in rows]
    table = pa.table(
        {
            "arrival_s": pa.array([row.arrival_s for row in rows], pa.float64()),
            "input_tokens": pa.array([row.input_tokens for row in rows], pa.int32()),
            "output_tokens": pa.array([row.output_tokens for row in rows], pa.int32()),
            "hash_ids": pa.array([list(row.hash_ids) for row in rows], pa.list_(pa.int64())),
            "prompt": pa.array([row.prompt for row in rows], pa.string()),
            "task_type": pa.array([row.task and str(row.task) for row in rows], pa.string()),
            "importance": pa.array([row.importance for row in rows], pa.float64()),
            "ttft_ms": pa.array([s and s.ttft_s * 1000 for s in slos], pa.float64()),
            "tpot_ms": pa.array([s and s.tpot_s * 1000 for s in slos], pa.float64()),
            "ttlt_ms": pa.array([None if not s or s.ttlt_s is None else s.ttlt_s * 1000 for s in slos], pa.float64()),
            "tenant": pa.array([row.tenant for row in rows], pa.string()),
        }
    )
    pq.write_table(table, path, compression="zstd")

"""Reads and writes a run's folder: `config.yaml`, `requests.parquet`, `summary.json`, `report.html`.

During the run each record is appended to `requests.partial.jsonl`, so that a killed run keeps its records and the same
plan with `resume` sends only the missing requests. That file is deleted once the Parquet file is complete.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.record import CUT_OFF, RequestRecord
from hmas_loadgen.result import INTERRUPTED, LoadResult

CONFIG, PARTIAL, REQUESTS, SUMMARY, REPORT = (
    "config.yaml",
    "requests.partial.jsonl",
    "requests.parquet",
    "summary.json",
    "report.html",
)
FLUSH_S = 1.0

_SLO = pa.struct([("ttft_s", pa.float64()), ("tpot_s", pa.float64()), ("ttlt_s", pa.float64()), ("whole", pa.bool_())])
_FIELDS: list[tuple[str, pa.DataType]] = [
    ("index", pa.int32()),
    ("request_id", pa.string()),
    ("tenant", pa.string()),
    ("task", pa.string()),
    ("slo", _SLO),
    ("prompt_tokens", pa.int32()),
    ("expected_output_tokens", pa.int32()),
    ("scheduled_s", pa.float64()),
    ("sent_s", pa.float64()),
    ("end_s", pa.float64()),
    ("outcome", pa.string()),
    ("status", pa.int16()),
    ("error", pa.string()),
    ("message", pa.string()),
    ("base_url", pa.string()),
    ("output_tokens", pa.int32()),
    ("first_token_s", pa.float64()),
    ("last_token_s", pa.float64()),
    ("token_times_s", pa.list_(pa.float64())),
    ("job", pa.string()),
    ("template", pa.string()),
    ("job_budget_s", pa.float64()),
]
SCHEMA = pa.schema(_FIELDS)


class FolderInUse(ValueError):
    """Raised if the result folder already holds a run that the new one must not overwrite. The message says what to
    do."""


class RunFolder:
    """Writes the files of one run. Use it as a context manager around `run_load`, and give `add` to it as `on_record`.

    `earlier` holds the records of the interrupted run that is being resumed, without requests that were cut off."""

    def __init__(self, path: Path, plan: LoadPlan, *, resume: bool = False) -> None:
        """Makes the folder `path`. Raises FolderInUse if it holds a run with another plan, a finished run, or, without
        `resume`, an unfinished one."""
        self.path = path
        self._fingerprint = plan.fingerprint()
        self.earlier: tuple[RequestRecord, ...] = ()
        path.mkdir(parents=True, exist_ok=True)
        if (path / CONFIG).exists():
            self._check(resume)
            # Requests that were cut off when the run was stopped are sent again: the server did not end them.
            self.earlier = tuple(r for r in _partial_records(path / PARTIAL) if r.error != CUT_OFF)
        config = plan.config() | {"fingerprint": self._fingerprint}
        (path / CONFIG).write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
        self._file = (path / PARTIAL).open("ab")
        if self._file.tell():
            self._file.write(b"\n")  # ends a line that a kill may have cut off
        self._flushed_s = 0.0

    def _check(self, resume: bool) -> None:
        config = yaml.safe_load((self.path / CONFIG).read_text())
        if config.get("fingerprint") != self._fingerprint:
            raise FolderInUse(
                f"{self.path} holds a run with other options; give that run's options, or choose another --out"
            )
        if (self.path / SUMMARY).exists():
            raise FolderInUse(f"{self.path} holds this run, already finished; choose another --out to run it again")
        if not resume:
            raise FolderInUse(
                f"{self.path} holds this run, unfinished; add --resume to continue it, or choose another --out"
            )

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def add(self, record: RequestRecord) -> None:
        """Appends one record to the partial file. The file is flushed at most once a second."""
        self._file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        now_s = time.monotonic()
        if now_s - self._flushed_s >= FLUSH_S:
            self._flushed_s = now_s
            self._file.flush()

    def finish(self, result: LoadResult) -> None:
        """Writes `requests.parquet` and `summary.json`. An interrupted run gets `partial-summary.json` instead and
        keeps its partial file, so that it can be resumed."""
        self._file.flush()
        pq.write_table(_table(result.records), self.path / REQUESTS, compression="zstd")
        whole = len(result.records) == _planned(result) and INTERRUPTED not in result.reasons
        name = SUMMARY if whole else f"partial-{SUMMARY}"
        _replace(self.path / name, orjson.dumps(summary(result), option=orjson.OPT_INDENT_2))
        if whole:
            (self.path / PARTIAL).unlink()
            (self.path / f"partial-{SUMMARY}").unlink(missing_ok=True)


def _planned(result: LoadResult) -> int:
    trace = result.config["trace"]
    assert isinstance(trace, dict)
    return int(trace["requests"])


def _replace(path: Path, content: bytes) -> None:
    """Writes `content` to `path` in one step, so that a reader never sees half a file."""
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(content)
    os.replace(beside, path)


def summary(result: LoadResult) -> dict[str, Any]:
    """Returns the content of `summary.json`: validity, lag, scores, errors and windows of a run. A number that does not
    exist, such as a quantile of no requests, is NaN here and null in JSON."""
    return {
        "name": result.name,
        "valid": result.valid,
        "reasons": list(result.reasons),
        "started_unix_s": result.started_unix_s,
        "offered_s": result.offered_s,
        "warmup_s": result.warmup_s,
        "lag_p50_ms": result.lag_p50_s * 1000,
        "lag_p99_ms": result.lag_p99_s * 1000,
        "score": asdict(result.score()),
        "stability": asdict(result.stability()),
        "errors": result.errors(),
        "jobs": {name or "all": asdict(score) for name, score in result.jobs().items()},
        "by_tenant": {name: asdict(score) for name, score in result.by_tenant().items()},
        "by_task": {name: asdict(score) for name, score in result.by_task().items()},
        "windows": [asdict(window) for window in result.windows()],
    }


def _table(records: Iterable[RequestRecord]) -> pa.Table:
    return pa.Table.from_pylist([asdict(record) for record in records], schema=SCHEMA)


def _partial_records(path: Path) -> Iterable[RequestRecord]:
    """Reads the records of a partial file. An incomplete or unreadable line is skipped, because the process may have
    been killed while writing it."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            yield _record(orjson.loads(line))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue


def _record(fields: dict[str, Any]) -> RequestRecord:
    fields["slo"] = Slo(**fields["slo"])
    fields["task"] = TaskType(fields["task"])
    fields["outcome"] = Outcome(fields["outcome"])
    fields["token_times_s"] = tuple(fields["token_times_s"])
    return RequestRecord(**fields)


def load_run(path: Path) -> LoadResult:
    """Reads the result of a finished or unfinished run from its folder. Raises ValueError if the folder holds no
    run."""
    if not (path / CONFIG).exists():
        raise ValueError(f"{path} holds no run ({CONFIG} is missing); give a folder that 'hmas load run' wrote")
    config = yaml.safe_load((path / CONFIG).read_text())
    if (path / REQUESTS).exists():
        records = tuple(map(_record, pq.read_table(path / REQUESTS).to_pylist()))
    else:
        last = {record.index: record for record in _partial_records(path / PARTIAL)}  # a job may have been sent again
        records = tuple(last[index] for index in sorted(last))
    told: dict[str, Any] = {}
    for name in (SUMMARY, f"partial-{SUMMARY}"):
        if (path / name).exists():
            told = orjson.loads((path / name).read_bytes())
            break
    return LoadResult(
        name=config["name"],
        model=config["target"]["model"],
        offered_s=config["window_s"],
        warmup_s=config["warmup_s"],
        config=config,
        started_unix_s=told.get("started_unix_s", 0.0),
        records=records,
        lag_p50_s=told.get("lag_p50_ms", 0.0) / 1000,
        lag_p99_s=told.get("lag_p99_ms", 0.0) / 1000,
        reasons=tuple(told.get("reasons", ("killed before its end",))),
    )

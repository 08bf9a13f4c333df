"""Reads the lines and fields of a trace file. Errors name the file, the line and the field."""

import csv
import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hmas_loadgen.traces.row import TraceError

MAX_LINE_CHARS = 16 * 2**20
REMEDY = "Correct or remove that line, or fetch the file again"


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one line of a trace file, by name. `line` counts from 1. The methods raise TraceError if a field is
    missing or malformed."""

    path: Path
    line: int
    fields: dict[str, object]

    def error(self, reason: str) -> TraceError:
        return TraceError(self.path, self.line, reason, REMEDY)

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if value is None or value == "":
            raise self.error(f"field '{name}' is missing or empty")
        return str(value)

    def number(self, name: str) -> float:
        """Returns the field as a finite number >= 0."""
        text = self.text(name)
        try:
            value = float(text)
        except ValueError:
            raise self.error(f"field '{name}' is not a number: {text!r}") from None
        if not math.isfinite(value) or value < 0:
            raise self.error(f"field '{name}' must be finite and not negative: {text!r}")
        return value

    def tokens(self, name: str) -> int:
        """Returns the field as a whole number of tokens >= 0."""
        value = self.number(name)
        if value != int(value):
            raise self.error(f"field '{name}' is not a whole number of tokens: {self.text(name)!r}")
        return int(value)


def open_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a plain or gzipped UTF-8 file without their line ends (LF or CRLF). Raises TraceError for a
    line longer than 16 MiB, text that is not UTF-8, or broken gzip data."""
    with path.open("rb") as probe:
        gzipped = probe.read(2) == b"\x1f\x8b"
    number = 0
    try:
        with (gzip.open if gzipped else open)(path, "rt", encoding="utf-8", newline="") as file:
            while line := file.readline(MAX_LINE_CHARS):
                number += 1
                if len(line) == MAX_LINE_CHARS and not line.endswith("\n"):
                    raise TraceError(path, number, "the line is longer than 16 MiB", REMEDY)
                yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise TraceError(
            path, number + 1, f"the text is not UTF-8 ({error.reason})", "Convert the file to UTF-8"
        ) from None
    except (gzip.BadGzipFile, EOFError) as error:
        raise TraceError(path, number + 1, f"the gzip data is broken ({error})", "Fetch the file again") from None


def csv_records(path: Path) -> Iterator[Record]:
    """Yields the records of a CSV file with a header line. Empty lines are skipped. Raises TraceError for a line with
    another number of fields than the header."""
    lines = open_lines(path)
    header = [name.strip().lstrip("\ufeff") for name in next(csv.reader(lines), [])]
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        cells = next(csv.reader([line]))
        if len(cells) != len(header):
            reason = f"the line has {len(cells)} fields, but the header {len(header)} ({','.join(header)})"
            raise TraceError(path, number, reason, REMEDY)
        yield Record(path, number, dict(zip(header, cells, strict=True)))


def json_records(path: Path) -> Iterator[Record]:
    """Yields the records of a JSONL file, one object per line. Raises TraceError for a line that is not one."""
    for number, line in enumerate(open_lines(path), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise TraceError(
                path, number, f"the line is not JSON ({error.msg}, column {error.colno})", REMEDY
            ) from None
        if not isinstance(value, dict):
            raise TraceError(path, number, f"the line must be a JSON object, not {type(value).__name__}", REMEDY)
        yield Record(path, number, value)


def hash_ids(record: Record) -> tuple[int, ...]:
    """Returns the field `hash_ids`, given as a JSON list or as integers separated by spaces; empty if there is none.
    Raises TraceError if it holds anything but whole numbers."""
    value = record.fields.get("hash_ids")
    if value is None or value == "":
        return ()
    items = value if isinstance(value, list) else str(value).split()
    try:
        return tuple(int(item) for item in items)
    except (TypeError, ValueError):
        raise record.error(f"field 'hash_ids' must be whole numbers: {str(value)[:60]!r}") from None

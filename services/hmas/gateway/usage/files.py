"""Files of usage: one CSV file for each day and gateway, replaced atomically, so that a restart goes on where it was.

A gateway that is killed loses what it booked since the file was last written, at most `WRITE_EVERY_S` seconds.
"""

import asyncio
import csv
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import TextIO

import structlog

from hmas.gateway.usage.book import COUNTS, UsageBook, UsageCounts, UsageKey, day_of

log = structlog.get_logger()
WRITE_EVERY_S = 10.0
MAX_DAYS = 8  # that wait for a disk to take them; older ones are given up
COLUMNS = (*UsageKey._fields, *COUNTS)
_NAME = re.compile(r"usage-(\d{4}-\d{2}-\d{2})\.(.+)\.csv")


class UsageFileError(ValueError):
    """A file of usage is damaged. The message names the file and the line."""


class UsageFiles:
    """Keeps the book of a gateway in files. The names of gateways that share a folder must differ."""

    def __init__(self, folder: Path, gateway: str, book: UsageBook, clock: Callable[[], float] = time.time) -> None:
        """Reads what this gateway has booked today; a damaged file is put aside. `clock` returns Unix seconds. Raises
        OSError if the folder cannot be made or read."""
        self._folder, self._book, self._clock = folder, book, clock
        self._gateway = re.sub(r"[^A-Za-z0-9_-]", "_", gateway)
        self._failing = False
        folder.mkdir(parents=True, exist_ok=True)
        path = self._path(day_of(clock()))
        if not path.exists():
            return
        try:
            book.resume(read_file(path))
        except UsageFileError as error:
            aside = path.with_suffix(f".damaged-{int(clock())}")
            path.rename(aside)
            log.error("usage_damaged", error=str(error), kept_as=str(aside))

    async def run(self) -> None:
        """Writes what changed every WRITE_EVERY_S seconds, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.write()

    async def write(self) -> None:
        """Writes the days that changed. What a disk does not take is tried again the next time."""
        today = day_of(self._clock())
        changed = self._book.changed()
        for day, rows in changed.items():
            copies = {row: copy(counts) for row, counts in rows.items()}
            try:
                await asyncio.to_thread(write_file, self._path(day), copies)
            except OSError as error:
                if not self._failing:
                    log.error("usage_not_written", error=str(error), effect="it is kept in memory and tried again")
                self._failing = True
                break
            self._failing = False
            self._book.written(day, today)
        for day in list(changed)[:-MAX_DAYS]:
            self._book.forget(day)

    def _path(self, day: str) -> Path:
        return self._folder / f"usage-{day}.{self._gateway}.csv"


def write_file(path: Path, rows: dict[UsageKey, UsageCounts]) -> None:
    """Replaces a file of usage atomically; it is readable by its owner alone. Raises OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", newline="") as file:
            write_rows(file, rows)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_rows(file: TextIO, rows: dict[UsageKey, UsageCounts]) -> None:
    """Writes a head and one line per row, sorted by day, tenant and key."""
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for row in sorted(rows):
        writer.writerow([*row, *(getattr(rows[row], name) for name in COUNTS)])


def read_file(path: Path) -> dict[UsageKey, UsageCounts]:
    """Reads a file of usage. Raises UsageFileError if it is damaged, and OSError if it cannot be read."""
    rows: dict[UsageKey, UsageCounts] = {}
    with path.open(newline="", encoding="utf-8") as file:
        try:
            for number, line in enumerate(csv.reader(file)):
                if number == 0 and tuple(line) == COLUMNS:
                    continue
                key = UsageKey(*line[:3])
                values = [int(value) for value in line[3:]]
                if number == 0 or len(values) != len(COUNTS) or min(values) < 0 or key in rows:
                    raise ValueError
                rows[key] = UsageCounts(**dict(zip(COUNTS, values, strict=True)))
        except (ValueError, TypeError, csv.Error):
            raise UsageFileError(f"{path}: line {number + 1} is not a line of a usage file") from None
    return rows


def read_folder(folder: Path, since: str, until: str) -> dict[UsageKey, UsageCounts]:
    """Returns the usage of all gateways from the day `since` to the day `until`, both included; an empty text leaves a
    side open. Raises UsageFileError and OSError."""
    rows: dict[UsageKey, UsageCounts] = {}
    for path in _files(folder, since, until):
        for row, counts in read_file(path).items():
            rows.setdefault(row, UsageCounts()).add(counts)
    return rows


def _files(folder: Path, since: str, until: str) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        found = _NAME.fullmatch(path.name)
        if found is not None and since <= found[1] and (not until or found[1] <= until):
            yield path

"""Measurements on disk, one JSON line each, so that a calibration can continue where it stopped."""

from pathlib import Path
from typing import Any

import orjson

from hmas.mesh.calibrate.measurement import Measurement


class MeasurementJournal:
    """The measurements of one calibration on disk; `done` holds them by point id.

    The file's first line is `subject`, which describes what is measured; the constructor raises ValueError for a file
    about another subject.
    """

    def __init__(self, path: Path, subject: dict[str, Any]) -> None:
        self._path = path
        self.done: dict[str, Measurement] = {}
        if path.exists():
            self._load(subject)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append(subject)

    def add(self, measurement: Measurement) -> None:
        self.done[measurement.id] = measurement
        self._append(measurement.row())

    def _load(self, subject: dict[str, Any]) -> None:
        rows = _rows(self._path)
        if not rows or rows[0] != subject:
            raise ValueError(
                f"{self._path} holds measurements of another endpoint, model or plan: use --fresh to discard them, or "
                "another --out"
            )
        self.done = {row["id"]: Measurement(**row) for row in rows[1:]}

    def _append(self, row: dict[str, Any]) -> None:
        with self._path.open("ab") as file:
            file.write(orjson.dumps(row) + b"\n")


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_bytes().splitlines():
        try:
            rows.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue  # the line was cut off when the calibration was interrupted
    return rows

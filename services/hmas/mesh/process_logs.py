"""The log files of an embedded mesh: each process writes its own, and the supervisor follows them.

A process that wrote into a pipe would stand still whenever the supervisor does: suspended, or waiting for its terminal.
A file takes a line at once, or refuses it at once when the disk is full."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

LOG_BYTES = 8 * 2**20
READ_BYTES = 2**20  # of one file at a time; a process that writes faster has lines that are not looked at
MAX_LINE_BYTES = 16_384
TAIL_BYTES = 2**16
ALARMS = ("warning", "error", "critical", "traceback")
SUPERVISOR = "supervisor"


class LineSplitter:
    """Splits a process's output into lines; a line is cut off at `MAX_LINE_BYTES`."""

    def __init__(self) -> None:
        self._open = bytearray()  # the beginning of a line whose end has not come yet

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that `data` completes, without their line ends."""
        *ends, rest = data.split(b"\n")
        done = []
        for end in ends:
            self._keep(end)
            done.append(bytes(self._open))
            self._open.clear()
        self._keep(rest)
        return done

    def close(self) -> list[bytes]:
        """Returns the last line if the output ended without a line end; otherwise an empty list."""
        return [bytes(self._open)] if self._open else []

    def _keep(self, part: bytes) -> None:
        self._open += part[: MAX_LINE_BYTES - len(self._open)]


class LogTail:
    """Reads what a process adds to its log file, and keeps the file below `LOG_BYTES`.

    A file that grew larger is copied to `<name>.log.1` and emptied; the process appends, so that it goes on at the
    start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._lines = LineSplitter()

    def read(self) -> list[bytes]:
        """Returns the lines that were completed since the last call. Raises OSError if the file cannot be read."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(self._position if size >= self._position else 0, size - READ_BYTES))
            lines = self._lines.feed(file.read(READ_BYTES))
            self._position = file.tell()
        if self._position > LOG_BYTES:
            with suppress(OSError):  # without room for a copy the lines are lost, and the disk has room again
                shutil.copyfile(self._path, f"{self._path}.1")
            os.truncate(self._path, 0)
            self._position = 0
        return lines


class ProcessLogs:
    """The log files in one directory, one a process, and one of the supervisor itself.

    `alarm(process, line)` gets the lines with a word of ALARMS and what the supervisor says; it must not block.
    """

    def __init__(self, directory: Path, alarm: Callable[[str, str], None]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._alarm = alarm
        self._tails: dict[str, LogTail] = {}
        self._failing: set[str] = set()
        self._start(SUPERVISOR).touch(0o600)

    def add(self, name: str) -> Path:
        """Starts a new log file for a process, follows it, and returns its path."""
        path = self._start(name)
        self._tails[name] = LogTail(path)
        return path

    def drop(self, name: str) -> None:
        """Follows the log file of a process no more, which has ended."""
        with self._told_once("read"):
            self._pass_on(name, self._tails.pop(name))

    def say(self, name: str, text: str) -> None:
        """Writes a line about a process to the supervisor's log file, and passes it on as an alarm."""
        self._alarm(name, text)
        line = f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {name}: {text}\n"
        with self._told_once("written"):
            self._append(line)

    def poll(self) -> None:
        """Passes on the alarms that processes have written since the last call."""
        for name, tail in list(self._tails.items()):
            with self._told_once("read"):
                self._pass_on(name, tail)

    def tail(self, name: str, lines: int = 15) -> str:
        """Returns the last lines of a process's log; "" if there are none."""
        try:
            with self._path(name).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _start(self, name: str) -> Path:
        path = self._path(name)
        path.unlink(missing_ok=True)
        return path

    def _append(self, line: str) -> None:
        path = self._path(SUPERVISOR)
        with suppress(FileNotFoundError):
            if path.stat().st_size > LOG_BYTES:
                path.replace(f"{path}.1")
        with path.open("a") as file:
            file.write(line)

    def _pass_on(self, name: str, tail: LogTail) -> None:
        for line in tail.read():
            text = line.decode(errors="replace")
            if any(word in text.lower() for word in ALARMS):
                self._alarm(name, text)

    @contextmanager
    def _told_once(self, done: str) -> Iterator[None]:
        """Says that logs cannot be `done` once, not at every line: no log may end the process that it tells of."""
        try:
            yield
        except OSError as error:
            if done not in self._failing:
                self._failing.add(done)
                self._alarm("logs", f"log lines cannot be {done} and are left out: {error}")
        else:
            self._failing.discard(done)

"""Structured logs: one line per decision or change of state, never one per token; event names are constant."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any

import structlog
from prometheus_client import Counter

from hmas.runtime.harmless_text import harmless_lines

DROPPED = Counter("hmas_log_lines_dropped_total", "Log lines that stderr did not take: its disk was full, for instance")
MOST_BYTES = 32 * 2**20  # of a log file that nobody empties, because the supervisor that does so stands still


class LogStream:
    """Writes log lines to a file descriptor, and drops and counts those that it does not take: no service may end, or
    stand still, because of its log. Names of others that are logged steer no terminal.

    `most_bytes`: if the descriptor is a file of at least this size, its lines are dropped too.
    """

    def __init__(self, fd: int, most_bytes: float = inf) -> None:
        self._fd = fd
        self._most_bytes = most_bytes
        self._coloured = os.isatty(fd)

    def write(self, text: str) -> int:
        try:
            if self._most_bytes < inf and os.fstat(self._fd).st_size >= self._most_bytes:
                raise OSError("the log file is too large")
            data = harmless_lines(text, coloured=self._coloured).encode("utf-8", "backslashreplace")
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            DROPPED.inc()
        return len(text)

    def flush(self) -> None:
        """Does nothing: lines are not buffered."""


class LogRateLimit:
    """Bounds how often lines of one kind are logged, so that a peer that sends nonsense cannot fill a disk.

    The kinds must be few: names of classes, for instance, not of peers.
    """

    def __init__(self, every_s: float = 10.0, clock: Callable[[], float] = monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._last: dict[str, tuple[float, int]] = {}  # kind: when a line was logged, and how many were left out since

    def due(self, kind: str) -> int | None:
        """Returns the number of lines of this kind that were left out since the last one, or None if this one is to be
        left out as well, because less than `every_s` seconds have passed."""
        now_s = self._clock()
        logged_s, left_out = self._last.get(kind, (float("-inf"), 0))
        if now_s - logged_s < self._every_s:
            self._last[kind] = (logged_s, left_out + 1)
            return None
        self._last[kind] = (now_s, 0)
        return left_out

    def warn(self, event: str, **facts: Any) -> None:
        """Logs a warning with the number of those of this event that were left out since the last one, if it is due."""
        left_out = self.due(event)
        if left_out is not None:
            more = {"left_out": left_out} if left_out else {}
            structlog.get_logger().warning(event, **facts, **more)


def configure_logs(service: str, instance: str, level: str, fmt: str) -> None:
    """Makes structlog and the standard library's logging write to stderr.

    `level` is a name such as "info"; `fmt` is "json" or "console". Each line carries `service` and `instance`.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    most_bytes = MOST_BYTES if "HMAS_PROCESS" in os.environ else inf  # set by the supervisor of `hmas up`
    stream: Any = sys.stderr
    with suppress(OSError):  # some stand-in for stderr, without a file descriptor
        stream = LogStream(sys.stderr.fileno(), most_bytes)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    # Structlog's default tracebacks print local variables, but prompts and API keys must not get into a log.
    plain_traceback = structlog.dev.plain_traceback
    renderer: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if fmt == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain_traceback)]
    )
    structlog.configure(
        processors=shared + renderer,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service, instance=instance)
    # Libraries log through the standard library; their lines below warning are of no use to an operator.
    logging.basicConfig(level=max(number, logging.WARNING), stream=stream, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # the bus reports connection changes itself

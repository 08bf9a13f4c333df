"""A service's log: lines that stderr does not take are dropped and counted."""

import os
import subprocess
import sys
from pathlib import Path

from hmas.runtime.logs import DROPPED, LogStream
from tests.counters import counted


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    before = counted(DROPPED)
    LogStream(full).write("hello\n")
    os.close(full)
    assert counted(DROPPED) == before + 1


def test_a_file_that_nobody_empties_stops_growing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stream = LogStream(fd, most_bytes=1000)
    for _ in range(1000):
        stream.write("0123456789\n")
    assert 1000 <= path.stat().st_size < 1011
    os.truncate(path, 0)
    stream.write("again\n")
    assert path.read_text() == "again\n"
    os.close(fd)


def test_a_service_logs_on_to_a_full_disk() -> None:
    """Both its own lines and those of libraries, whose handler would print a traceback for each."""
    code = (
        "import logging, structlog; from prometheus_client import REGISTRY\n"
        "from hmas.runtime.logs import configure_logs\n"
        "configure_logs('qos', 'qos', 'info', 'json')\n"
        "for i in range(10): structlog.get_logger().info('hello', i=i)\n"
        "logging.getLogger('library').warning('hello')\n"
        "print(REGISTRY.get_sample_value('hmas_log_lines_dropped_total'))"
    )
    with open("/dev/full", "w") as full:  # a device
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, check=True, text=True)
    assert done.stdout == "11.0\n"

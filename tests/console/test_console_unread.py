"""Browsers that read nothing, at real sockets: what the console holds for them has a bound, however much it tells."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import httpx
import psutil
import pytest

from tests.console.heard import heartbeat, queue_told, queued
from tests.console.sped import SpedConsole, sped_console

BROWSERS = 20
PAGE = "queue"
ROWS = 200
TOLD_BYTES = 16 * 2**20  # to the browser that reads
MOST_BYTES = 64 * 2**20  # that the process may grow by: a fifth of what the others were not sent


class BusyConsole(SpedConsole):
    """Its page Queue has other requests with each look."""

    def _tick(self) -> float:
        self.now_s += 1
        self.state.hear(self.now_s, heartbeat("w1"))
        told = queue_told()
        rows = tuple(queued(f"request-{self.now_s}-{number}", 1.0) for number in range(ROWS))
        self.state.take_queue(self.now_s, "w1", "", replace(told, orders=(replace(told.orders[0], rows=rows),)))
        return float(self.now_s)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpedConsole]:
    with sped_console(monkeypatch, BusyConsole) as console:
        yield console


def unread(port: int) -> socket.socket:
    """A stream of which the first bytes alone are read."""
    browser = socket.create_connection(("127.0.0.1", port))
    browser.sendall(f"GET /api/stream?page={PAGE} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    assert browser.recv(12) == b"HTTP/1.1 200"
    return browser


def test_browsers_that_read_nothing_cost_bounded_memory(busy: SpedConsole) -> None:
    process = psutil.Process()
    with ExitStack() as stack:
        for _ in range(BROWSERS):
            stack.enter_context(unread(busy.port))
        before, read = process.memory_info().rss, 0
        reader = stack.enter_context(httpx.stream("GET", f"http://127.0.0.1:{busy.port}/api/stream?page={PAGE}"))
        for chunk in reader.iter_raw():
            read += len(chunk)
            if read > TOLD_BYTES:
                break
        grown = process.memory_info().rss - before
    print(f"{read / 2**20:.0f} MiB told, grown by {grown / 2**20:.1f} MiB")
    assert grown < MOST_BYTES

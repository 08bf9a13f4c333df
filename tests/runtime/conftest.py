"""A real nats-server for the runtime's tests, and the event loops that they run on."""

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from hmas.mesh.ports import free_port
from tests.conftest import PATIENCE_S


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Services run on uvloop; what handles sockets itself is tested on both event loops."""
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return both if item.path.name == "test_frames.py" else {"asyncio": asyncio.new_event_loop}


def nats_binary() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server") or "nats-server"


class NatsProcess:
    """Starts, kills and restarts one server on a fixed port with JetStream."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.flags = flags
        self.port = free_port()
        self.directory = directory
        self.url = f"nats://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [nats_binary(), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.directory), *self.flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError("nats-server did not start")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsProcess]:
    server = NatsProcess(tmp_path / "js")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def nats_cluster(tmp_path: Path) -> Iterator[list[NatsProcess]]:
    """Three servers that know one another's routes."""
    ports = [free_port() for _ in range(3)]
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    servers = [
        NatsProcess(
            tmp_path / f"js-{port}", "--server_name", f"n{port}", "--cluster_name", "test",
            "--cluster", f"nats://127.0.0.1:{port}", "--routes", routes,
        )
        for port in ports
    ]  # fmt: skip
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.kill()

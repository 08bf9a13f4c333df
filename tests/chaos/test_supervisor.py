"""`hmas up` itself: whatever stops it, its terminal or its disk, the services go on, and SIGTERM ends them all."""

import asyncio
import os
import pty
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.hurt import full_disk, small_disk
from tests.chaos.load import Load
from tests.conftest import RunningMesh, eventually

pytestmark = pytest.mark.chaos
SOAK = "HMAS_SOAK" in os.environ
DEATHS = 10 if SOAK else 3
GRACE_S = 65.0  # of the gateway, then of the others together, then of NATS
STOP, GO_ON = b"\x13", b"\x11"  # Ctrl-S, Ctrl-Q


class Terminal:
    """A terminal of which somebody reads everything; Ctrl-S and Ctrl-Q stop it and let it go on."""

    def __init__(self) -> None:
        self._keys, self.fd = pty.openpty()
        self.shown = b""
        threading.Thread(target=self._read, daemon=True).start()

    def type(self, keys: bytes) -> None:
        os.write(self._keys, keys)

    def _read(self) -> None:
        while True:
            try:
                self.shown += os.read(self._keys, 65_536)
            except OSError:  # its other end was closed
                return


@contextmanager
def mesh_on(disk: Path, terminal: Terminal) -> Iterator[RunningMesh]:
    mesh = RunningMesh(disk, ["--replay"], {"HMAS_DRAIN_GRACE_S": "8"}, terminal.fd)
    try:
        mesh.wait_ready()
        yield mesh
    finally:
        mesh.process.kill()
        mesh.process.wait()
        terminal.type(GO_ON)


@pytest.fixture(scope="module")
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, terminal: Terminal) -> Iterator[Any]:
    with small_disk(tmp_path_factory.mktemp("disk"), "48m") as disk, mesh_on(disk, terminal) as running:
        yield running


def children(mesh: RunningMesh) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{mesh.process.pid}/task/{mesh.process.pid}/children").read_text().split()]


def runs(mesh: RunningMesh, name: str) -> bool:
    try:
        return bool(mesh.pid(name))
    except (LookupError, OSError):
        return False


def lines(mesh: RunningMesh, words: str) -> int:
    return (mesh.directory / "logs" / "supervisor.log").read_text().count(words)


async def dies(mesh: RunningMesh, name: str, times: int, seen: Callable[[int], bool]) -> None:
    """Kills a process as often as that, each time after it was started again; `seen` gets the number of deaths."""
    for death in range(1, times + 1):
        await eventually(lambda: runs(mesh, name), 30)
        mesh.kill(name)
        await eventually(lambda death=death: seen(death), 30)  # type: ignore[misc]
    await eventually(lambda: runs(mesh, name), 30)


@pytest.mark.long
async def test_a_stopped_terminal_stops_nothing(mesh: Any, terminal: Terminal) -> None:
    """Each death and restart is one line in the supervisor's log, and on the terminal once it goes on."""
    await eventually(lambda: b"Ctrl-C stops it" in terminal.shown)
    terminal.type(STOP)
    async with Load(mesh.url, rate=4) as load:
        await dies(mesh, "qos", DEATHS, lambda death: lines(mesh, " qos: it died of SIGKILL after") == death)
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
    assert b"qos" not in terminal.shown.split(b"Ctrl-C stops it")[1]
    terminal.type(GO_ON)
    await eventually(lambda: terminal.shown.count(b"it died of SIGKILL") == DEATHS)
    await eventually(lambda: terminal.shown.count(b"it runs again as process") == DEATHS)
    assert lines(mesh, " qos: it runs again as process") == DEATHS


async def test_a_suspended_supervisor_stops_nothing(mesh: Any) -> None:
    """A process that dies meanwhile is started again afterwards."""
    before = lines(mesh, " prediction: it died of SIGKILL")
    mesh.process.send_signal(signal.SIGSTOP)
    try:
        async with Load(mesh.url, rate=4) as load:
            mesh.kill("prediction")
            await asyncio.sleep(5.0)
    finally:
        mesh.process.send_signal(signal.SIGCONT)
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
    await eventually(lambda: lines(mesh, " prediction: it died of SIGKILL") == before + 1)
    await eventually(lambda: lines(mesh, " prediction: it runs again as process") == before + 1)


@pytest.mark.long
async def test_a_full_disk_stops_nothing_and_is_told_once(mesh: Any, terminal: Terminal) -> None:
    shown, log = len(terminal.shown), mesh.directory / "logs" / "supervisor.log"
    with log.open("a") as file:
        file.write("\n" * (-log.stat().st_size % 4096))  # the rest of its last page would still take a few lines
    with full_disk(mesh.directory):
        async with Load(mesh.url, rate=4) as load:
            await dies(mesh, "qos", 2, lambda death: terminal.shown[shown:].count(b"it died of SIGKILL") == death)
        assert set(load.ends) == {"finished"}, (load.ends, load.details)
    said = terminal.shown[shown:].decode()
    assert said.count("log lines cannot be written and are left out") == 1
    assert "Traceback" not in said


@pytest.mark.long
async def test_sigterm_ends_everything_in_each_of_these_states(mesh: Any, terminal: Terminal) -> None:
    """All three at once. A suspended process gets SIGTERM when it is continued, not before: so are signals."""
    started = children(mesh)
    terminal.type(STOP)
    with full_disk(mesh.directory):
        mesh.process.send_signal(signal.SIGSTOP)
        mesh.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(1.0)
        assert mesh.process.poll() is None
        mesh.process.send_signal(signal.SIGCONT)
        continued_s = time.monotonic()
        await eventually(lambda: mesh.process.poll() is not None, GRACE_S)
    print(f"ended {time.monotonic() - continued_s:.1f} s after it was continued")
    assert mesh.process.returncode == 0
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]

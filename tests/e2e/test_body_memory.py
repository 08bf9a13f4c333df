"""The memory of a gateway's process while a hundred of the largest bodies wait in it, each of the worst shape."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hmas.gateway.openai.body import MAX_CONTAINERS
from hmas.mesh.ports import free_port
from tests.chaos.hurt import metric
from tests.conftest import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), pytest.mark.long]
BODIES, BOUND_MB = 100, 700
LARGEST = 2 * 2**20  # the default of HMAS_MAX_BODY_BYTES
START = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello"}],"x":['
SHAPES = {"lists": b"[],", "objects": b"{},", "numbers": b"1e3,", "nested": b"[" * 200 + b"]" * 200 + b","}


def of_shape(piece: bytes) -> bytes:
    """As many pieces as a body may hold lists and objects, and token ids up to the largest size."""
    room = LARGEST - len(START) - 3
    pieces = min(room // len(piece), (MAX_CONTAINERS - 4) // max(1, piece.count(b"[") + piece.count(b"{")))
    return START + piece * pieces + b"0," * ((room - pieces * len(piece)) // 2) + b"0]}"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[int, int, str]]:
    """A gateway's process without workers, in which requests wait; gives its pid, port and ops URL."""
    port, ops_port = free_port(), free_port()
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HMAS_")},
        "HMAS_PORT": str(port),
        "HMAS_OPS_PORT": str(ops_port),
        "HMAS_NATS_URL": f"nats://127.0.0.1:{free_port()}",
        "HMAS_PATIENCE_S": "600",
        "HMAS_LOG_LEVEL": "error",
    }
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "hmas.gateway"], env=env, stderr=log, stdout=log)
    try:
        yield process.pid, port, f"http://127.0.0.1:{ops_port}"
    finally:
        process.kill()
        process.wait()


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


async def test_a_hundred_of_the_largest_bodies_of_the_worst_shape(
    gateway: tuple[int, int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    pid, port, ops_url = gateway

    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        except httpx.TransportError:
            return False

    await eventually(answers, 60)
    before_mb, shapes = peak_mb(pid), list(SHAPES.values())

    async def send(number: int) -> asyncio.StreamWriter:
        data = of_shape(shapes[number % len(shapes)])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(data))
        writer.write(data)
        await writer.drain()
        return writer

    def all_are_open() -> bool:
        try:
            return metric(ops_url, "hmas_gateway_live_requests") == BODIES
        except httpx.TransportError:  # it reads bodies, on a busy machine for longer than this client waits
            return False

    writers = await asyncio.gather(*(send(number) for number in range(BODIES)))
    await eventually(all_are_open, 200)
    with capsys.disabled():
        print(
            f"\n{BODIES} bodies of {LARGEST} bytes: {before_mb:.0f} MB before, {peak_mb(pid):.0f} MB at most", end=" "
        )
    assert peak_mb(pid) < BOUND_MB
    assert answers()
    for writer in writers:
        writer.close()

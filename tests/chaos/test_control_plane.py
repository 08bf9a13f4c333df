"""The control plane comes back by itself: after a full disk, lost leases, an empty store, and clocks that jump.

It leads again when qos, meta and Statera hold their leases and every worker obeys their controls. The goal is 15 s; the
tests wait twice as long and print what it took.
"""

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest

from hmas.gateway.usage.files import WRITE_EVERY_S, read_folder
from hmas.wire.subjects import AUDIT_STREAM, CONTROL_BUCKET, LEASE_BUCKET, PAST_BUCKET
from tests.chaos.hurt import frozen, full_disk, metric, small_disk
from tests.chaos.load import Load
from tests.conftest import eventually

pytestmark = pytest.mark.chaos
MASTER = "master"
LEADERS = ("qos", "meta", "statera")
WORKERS = ("worker-1", "worker-2")
VALID_FOR_S = 3.0
ENV = {"HMAS_TOPOLOGY_VALID_FOR_S": f"{VALID_FOR_S:g}", "HMAS_TUPLE_VALID_FOR_S": f"{VALID_FOR_S:g}"}
GOAL_S = 15.0
FULL_FOR_S = 40.0


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    """A mesh whose data directory is a small file system."""
    with small_disk(tmp_path_factory.mktemp("disk"), "48m") as disk, start_mesh(disk, "--replay", env=ENV) as running:
        yield running


def expired(mesh: Any, name: str) -> bool:
    return metric(mesh.state["ops_urls"][name], "hmas_worker_control_expired") == 1


def leads(mesh: Any) -> bool:
    urls = mesh.state["ops_urls"]
    try:
        held = all(metric(urls[name], "hmas_lease_held") == 1 for name in LEADERS)
        return held and not any(expired(mesh, name) for name in WORKERS)
    except httpx.TransportError:
        return False


def epochs(mesh: Any) -> dict[str, int]:
    """The epoch in which each leader holds its lease, by its log."""
    found = {}
    for name in LEADERS:
        lines = (mesh.directory / "logs" / f"{name}.log").read_text().splitlines()
        granted = [line for line in lines if "lease_granted" in line]
        found[name] = len(granted)
    return found


async def on_nats(mesh: Any, do: Callable[[Any], Awaitable[None]]) -> None:
    """Does something to JetStream that no user of the mesh may do: NATS is given another one."""
    config = mesh.directory / "nats.conf"
    options = json.loads(config.read_text())
    users = options["authorization"]["users"]
    if all(user["user"] != MASTER for user in users):
        users.append({"user": MASTER, "password": MASTER})
        config.write_text(json.dumps(options))
        mesh.kill("nats", signal.SIGHUP)
        await asyncio.sleep(0.5)
    client = await nats.connect(mesh.state["nats_url"], user=MASTER, password=MASTER)
    try:
        await do(client.jetstream())
    finally:
        await client.close()


async def comes_back(mesh: Any, what: str, hurt: Callable[[], Awaitable[None]]) -> None:
    """Hurts the control plane, under load, so that every lease is lost; measures how long until it leads again."""
    await eventually(lambda: leads(mesh), 30)
    before = epochs(mesh)
    async with Load(mesh.url, rate=4) as load:
        await hurt()
        started_s = time.monotonic()
        await eventually(lambda: all(n > before[name] for name, n in epochs(mesh).items()) and leads(mesh), 2 * GOAL_S)
        print(f"{what}: leads again after {time.monotonic() - started_s:.1f} s")
    assert set(load.ends) == {"finished"}, (load.ends, load.details)


async def test_leases_deleted(mesh: Any) -> None:
    async def delete(js: Any) -> None:
        leases = await js.key_value(LEASE_BUCKET)
        for name in LEADERS:
            await leases.delete(f"lease.{name}")

    await comes_back(mesh, "lease keys deleted", lambda: on_nats(mesh, delete))


@pytest.mark.long
@pytest.mark.parametrize("bucket", [LEASE_BUCKET, CONTROL_BUCKET])
async def test_buckets_deleted(mesh: Any, bucket: str) -> None:
    async def delete(js: Any) -> None:
        await js.delete_key_value(bucket)

    if bucket == LEASE_BUCKET:
        await comes_back(mesh, "leases' bucket deleted", lambda: on_nats(mesh, delete))
        return
    await on_nats(mesh, delete)  # the leases do not depend on it, and decisions are stored in a new one
    stored: list[int] = []

    async def count(js: Any) -> None:
        stored.append((await js.stream_info(f"KV_{CONTROL_BUCKET}")).state.messages)

    await asyncio.sleep(VALID_FOR_S)
    await on_nats(mesh, count)
    assert stored[0] >= len(WORKERS) + 1
    assert leads(mesh)


@pytest.mark.long
@pytest.mark.parametrize("stream", [f"KV_{CONTROL_BUCKET}", f"KV_{PAST_BUCKET}", AUDIT_STREAM])
async def test_what_is_stored_is_deleted_under_load(mesh: Any, stream: str) -> None:
    """What was in it is gone; what comes is stored in a new one, and no request notices."""

    async def delete(js: Any) -> None:
        await js.delete_stream(stream)

    found: list[bool] = []

    async def look(js: Any) -> None:
        names = {info.config.name for info in await js.streams_info()}
        found.append(stream in names)

    await eventually(lambda: leads(mesh), 30)
    async with Load(mesh.url, rate=6) as load:
        await asyncio.sleep(2.0)
        await on_nats(mesh, delete)
        began_s = time.monotonic()
        while not (found and found[-1]):
            assert time.monotonic() - began_s < 2 * GOAL_S
            await asyncio.sleep(0.5)
            await on_nats(mesh, look)
        print(f"{stream} deleted: there again after {time.monotonic() - began_s:.1f} s")
        assert leads(mesh)
    assert set(load.ends) == {"finished"}, (load.ends, load.details)


@pytest.mark.long
async def test_nats_restarted_with_an_empty_store(mesh: Any) -> None:
    async def empty() -> None:
        mesh.kill("nats")
        shutil.rmtree(mesh.directory / "nats")

    await comes_back(mesh, "NATS restarted with an empty store", empty)


@pytest.mark.long
async def test_disk_full_and_freed(mesh: Any) -> None:
    """The leases are held and decisions are in force all the time; afterwards they are stored again, and so is the use
    of every request, those meanwhile among them."""

    def booked() -> int:
        return sum(counts.requests for counts in read_folder(mesh.directory / "usage", "", "").values())

    def stored() -> bool:
        try:
            urls = mesh.state["ops_urls"]
            return sum(metric(urls[name], "hmas_bucket_failing_seconds") for name in LEADERS) == 0
        except httpx.TransportError:
            return False

    await eventually(lambda: leads(mesh), 30)
    await asyncio.sleep(WRITE_EVERY_S + 2.0)
    before = booked()
    async with Load(mesh.url, rate=4) as load:
        with full_disk(mesh.directory):
            began_s = time.monotonic()
            looks = led = 0
            while time.monotonic() - began_s < FULL_FOR_S:
                looks, led = looks + 1, led + leads(mesh)
                await asyncio.sleep(0.5)
            assert not stored()
        freed_s = time.monotonic()
        await asyncio.sleep(1.0)
        await eventually(lambda: stored() and leads(mesh), 2 * GOAL_S)
        print(f"disk full: led at {led} of {looks} looks; stores and leads {time.monotonic() - freed_s:.1f} s later")
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
    await eventually(lambda: booked() == before + load.ends.total(), 3 * WRITE_EVERY_S)
    assert led >= 0.9 * looks  # what the machine's other work delays aside
    log = (mesh.directory / "logs" / "supervisor.log").read_text()
    assert "nats: it is restarted: it has not stored a decision for" in log


@pytest.mark.long
async def test_a_worker_that_starts_while_nobody_decides_says_so(mesh: Any) -> None:
    await eventually(lambda: leads(mesh), 30)
    with frozen(mesh, "meta"), frozen(mesh, "statera"):
        await eventually(lambda: all(expired(mesh, name) for name in WORKERS), 30)
        mesh.kill("worker-1")
        started_s = time.monotonic()
        while time.monotonic() - started_s < 2 * VALID_FOR_S:
            await asyncio.sleep(0.2)
            try:
                assert expired(mesh, "worker-1")
            except httpx.TransportError:
                continue  # not up yet
        assert expired(mesh, "worker-1")
    await eventually(lambda: leads(mesh), 30)


FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


@pytest.mark.long
@pytest.mark.skipif(FAKETIME is None, reason="no wall clock can be moved without the package faketime")
async def test_the_wall_clock_jumps(tmp_path: Path, start_mesh: Any) -> None:
    """By an hour both ways, for all processes but NATS, which asks the kernel itself."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    env = {
        **ENV, "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    with start_mesh(tmp_path / "data", "--replay", env=env) as mesh:
        await eventually(lambda: leads(mesh), 30)
        before = epochs(mesh)
        async with Load(mesh.url, rate=4) as load:
            for jump in ("+3600", "-3600"):
                clock.write_text(jump)
                await asyncio.sleep(2.0)
                started_s = time.monotonic()
                await eventually(lambda: leads(mesh), 2 * GOAL_S)
                print(f"wall clock at {jump} s: leads after {time.monotonic() - started_s:.1f} s")
                mesh.kill("meta")  # one that starts at the new time takes over
                await asyncio.sleep(1.0)
                started_s = time.monotonic()
                await eventually(lambda: leads(mesh), 2 * GOAL_S)
                print(f"wall clock at {jump} s: a new copy leads after {time.monotonic() - started_s:.1f} s")
        assert set(load.ends) == {"finished"}, (load.ends, load.details)
        assert epochs(mesh)["statera"] == before["statera"]
        stamps = (mesh.directory / "logs" / "meta.log").read_text().split("\n")
        assert len({line[:13] for line in stamps if line[:2] == "20"}) >= 2  # hours: the clock did jump

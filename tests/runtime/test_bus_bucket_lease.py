"""Bus, bucket and lease against a real nats-server."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog

from hmas.contracts.control import AuditRecord, Hints, Pin, TopologyName
from hmas.runtime.bucket import BucketUnavailable, ControlBucket, LeaseBucket
from hmas.runtime.bus import DROPPED, HANDLER_FAILURES, Bus
from hmas.runtime.keeper import Keeper
from hmas.runtime.lease import HELD, Lease
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.subjects import CONTROL_BUCKET, LEASE_BUCKET
from hmas.wire.v1 import observe_pb2
from tests.conftest import PATIENCE_S
from tests.counters import counted
from tests.runtime.conftest import NatsProcess

PIN = Pin("pool", TopologyName.EDF, Hints(), "operator")


async def eventually(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(bus: Bus, *more: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(c()) for c in (bus.run, *more)]
    try:
        await asyncio.wait_for(bus.wait_connected(), PATIENCE_S)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await bus.close()


def make_bus(url: str) -> Bus:
    return Bus(RuntimeSettings(nats_url=url), "test")


async def test_values_arrive_decoded_and_malformed_ones_do_not(nats_server: Any) -> None:
    bus = make_bus(nats_server.url)
    got: list[Pin] = []
    bus.subscribe("a.b", Pin, got.append)
    async with running(bus):
        await bus.client.publish("a.b", b"\xff\xff")
        bus.publish("a.b", PIN)
        await eventually(lambda: bool(got))
    assert got == [PIN]


async def test_a_handler_that_raises_is_told_with_its_traceback_and_stops_nothing(nats_server: Any) -> None:
    bus = make_bus(nats_server.url)
    got: list[Pin] = []

    def fail_first(pin: Pin) -> None:
        got.append(pin)
        if len(got) < 3:
            raise ZeroDivisionError("a bug")

    async def fail(data: bytes) -> bytes:
        raise ZeroDivisionError("another bug")

    bus.subscribe("a.b", Pin, fail_first)
    bus.answer("a.q", fail)
    with structlog.testing.capture_logs() as logs:
        async with running(bus):
            for _ in range(3):
                bus.publish("a.b", PIN)
            await eventually(lambda: len(got) == 3)
            with pytest.raises(asyncio.TimeoutError):
                await bus.client.request("a.q", b"", timeout=0.3)
    told = [entry for entry in logs if entry["event"] == "handler_failed"]
    assert [(entry["log_level"], entry["subject"]) for entry in told] == [("warning", "a.b")]
    assert isinstance(told[0]["exc_info"], ZeroDivisionError)
    assert counted(HANDLER_FAILURES.labels("a.b")) == 2
    assert counted(HANDLER_FAILURES.labels("a.q")) == 1


async def test_a_value_that_cannot_be_encoded_is_dropped_and_counted(nats_server: Any) -> None:
    bus = make_bus(nats_server.url)
    record = AuditRecord(
        source="meta", pool="p", kind="decided", decision="", reason="", selector="", view_json="", epoch=2**70, seq=1
    )
    async with running(bus):
        before = counted(DROPPED.labels("not_encodable"))
        bus.publish("a.b", record)
        assert counted(DROPPED.labels("not_encodable")) == before + 1


async def test_publishing_without_a_server_neither_blocks_nor_raises() -> None:
    bus = make_bus("nats://127.0.0.1:1")
    bus.publish("a", PIN)
    await bus.close()


async def test_bus_and_bucket_survive_a_killed_server(nats_server: Any) -> None:
    bus = make_bus(nats_server.url)
    got: list[Pin] = []
    bucket = ControlBucket(bus, "test")
    bus.subscribe("a.b", Pin, got.append)
    async with running(bus):
        await bucket.put("pin.x", PIN)
        nats_server.kill()
        await eventually(lambda: not bus.connected)
        with pytest.raises(BucketUnavailable):
            await bucket.put("pin.x", PIN)
        nats_server.start()
        await eventually(lambda: bus.connected)
        bus.publish("a.b", PIN)
        await eventually(lambda: bool(got))
        read = await bucket.read(Pin, "pin.x")
    assert read is not None
    assert read[0] == PIN


async def test_a_cluster_keeps_the_bucket_when_a_server_dies(nats_cluster: Any) -> None:
    urls = ",".join(server.url for server in nats_cluster)
    bus = Bus(RuntimeSettings(nats_url=urls, nats_replicas=3), "test")
    bucket = ControlBucket(bus, "test")

    async def settled(call: Callable[[], Awaitable[Any]]) -> Any:
        """A cluster that elects a leader refuses for a while."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await call()
                except BucketUnavailable:
                    await asyncio.sleep(0.2)

    async with running(bus):
        await settled(lambda: bucket.put("pin.x", PIN))
        await settled(bucket.ensure_audit_stream)
        info = await bus.client.jetstream().stream_info(f"KV_{CONTROL_BUCKET}")
        assert info.config.num_replicas == 3
        assert info.cluster is not None
        leader = next(s for s in nats_cluster if info.cluster.leader in s.flags)
        leader.kill()
        read = await settled(lambda: bucket.read(Pin, "pin.x"))
        await settled(lambda: bucket.put("pin.x", PIN))
    assert read is not None
    assert read[0] == PIN


async def test_a_value_is_aged_by_the_servers_clock(nats_server: Any) -> None:
    bus = make_bus(nats_server.url)
    bucket = ControlBucket(bus, "test")
    async with running(bus):
        assert await bucket.read(Pin, "pin.none") is None
        before_s = time.monotonic()
        await bucket.put("pin.x", PIN)
        put_s = time.monotonic()
        first = await bucket.read(Pin, "pin.x")
        first_s = time.monotonic()
        second = await bucket.read(Pin, "pin.x")
        second_s = time.monotonic()
    assert first is not None
    assert second is not None
    assert 0 <= first[1] < second[1]
    assert first_s - put_s < second[1] < second_s - before_s


async def test_the_keeper_writes_the_newest_value(nats_server: Any) -> None:
    bus = make_bus(nats_server.url)
    bucket = ControlBucket(bus, "test")
    keeper = Keeper(bucket)
    last = Pin("pool", TopologyName.SJF, Hints(), "b")
    async with running(bus, keeper.run):
        keeper.keep("pin.x", PIN)
        keeper.keep("pin.x", last)
        async with asyncio.timeout(PATIENCE_S):
            while (read := await bucket.read(Pin, "pin.x")) is None or read[0] != last:
                await asyncio.sleep(0.01)


async def test_the_epoch_grows_with_every_take_over_and_one_holds_the_lease(nats_server: Any) -> None:
    bus, now = make_bus(nats_server.url), [0.0]
    bucket = LeaseBucket(bus)
    heard: list[tuple[str, object]] = []

    def copy(name: str) -> Lease:
        return Lease(
            bucket, "meta", name, lambda e: heard.append((name, e)), lambda: heard.append((name, "lost")),
            clock=lambda: now[0],
        )  # fmt: skip

    async with running(bus):
        a, b = copy("a"), copy("b")
        await a.tick()
        await b.tick()
        assert (a.held, b.held) == (True, False)
        now[0] += 2.0
        await a.tick()
        now[0] += 2.0
        await b.tick()  # sees the renewal: no take-over though more than the ttl passed since it first looked
        assert not b.held
        now[0] += 3.5
        await b.tick()
        assert b.held
        await a.tick()
        assert not a.held
        await b.release()
        await a.tick()
    assert heard == [("a", 1), ("b", 2), ("a", "lost"), ("b", "lost"), ("a", 3)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a small file system can be mounted by root alone")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill_disk(disk: Path) -> None:
    filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(filler, bytes(4096))
    os.close(filler)


async def test_the_lease_outlasts_a_full_disk_and_the_failing_bucket_is_told(small_disk: Path) -> None:
    """A server does not write to a stream on disk again before it is restarted, though the disk has room by then."""
    server = NatsProcess(small_disk)
    server.start()
    bus = make_bus(server.url)
    bucket, heard = ControlBucket(bus, "test"), list[object]()
    lease = Lease(LeaseBucket(bus), "meta", "a", heard.append, lambda: heard.append("lost"))
    try:
        async with running(bus):
            await lease.tick()
            await bucket.put("pin.x", PIN)
            fill_disk(small_disk)
            with suppress(BucketUnavailable):
                for _ in range(1000):  # the last page of the file still takes some
                    await bucket.put("pin.x", PIN)
            with pytest.raises(BucketUnavailable):
                await bucket.put("pin.x", PIN)
            for _ in range(200):  # more than the last page of a file would take
                await lease.tick()
                assert lease.held
            assert bucket.failing_s > 0
            (small_disk / "filler").unlink()
            server.kill()
            await eventually(lambda: not bus.connected)
            server.start()
            await eventually(lambda: bus.connected)
            await bucket.put("pin.x", PIN)
            assert bucket.failing_s == 0
    finally:
        server.kill()
    assert heard == [1]


async def leads_again(lease: Lease, heard: list[object]) -> int:
    """Ticks until the lease is held in epoch 2; returns the number of ticks, one a second in a running service."""
    for ticks in range(1, 16):
        await lease.tick()
        if heard[-1] == 2:
            return ticks
    raise AssertionError(f"nobody leads: {heard}")


@pytest.mark.parametrize("held", [True, False], ids=["held", "standby"])
@pytest.mark.parametrize("trouble", ["key_deleted", "key_purged", "bucket_deleted", "empty_store", "absurd", "garbage"])
async def test_the_lease_comes_back_with_the_next_epoch(nats_server: Any, trouble: str, held: bool) -> None:
    bus = make_bus(nats_server.url)
    bucket, heard = LeaseBucket(bus), list[object]()
    lease = Lease(bucket, "meta", "a", heard.append, lambda: heard.append("lost"))
    async with running(bus):
        await lease.tick()
        if not held:
            await lease.release()
        js = bus.client.jetstream()
        kv = await js.key_value(LEASE_BUCKET)
        match trouble:
            case "key_deleted":
                await kv.delete("lease.meta")
            case "key_purged":
                await kv.purge("lease.meta")
            case "bucket_deleted":
                await js.delete_key_value(LEASE_BUCKET)
            case "empty_store":
                nats_server.kill()
                await eventually(lambda: not bus.connected)
                shutil.rmtree(nats_server.directory)
                nats_server.start()
                await eventually(lambda: bus.connected)
            case "absurd":
                await kv.put("lease.meta", observe_pb2.Lease(holder="evil", epoch=2**63 - 1).SerializeToString())
            case "garbage":
                await kv.put("lease.meta", b"\xff\xff")
        ticks = await leads_again(lease, heard)
    assert lease.held
    print(f"{trouble}: leads after {ticks} ticks")
    assert heard == [1, "lost", 2]


async def test_a_new_copy_takes_a_deleted_lease(nats_server: Any) -> None:
    bus = make_bus(nats_server.url)
    bucket = LeaseBucket(bus)
    async with running(bus):
        first = Lease(bucket, "meta", "a", lambda epoch: None, lambda: None)
        await first.tick()
        await (await bus.client.jetstream().key_value(LEASE_BUCKET)).delete("lease.meta")
        second = Lease(bucket, "meta", "b", lambda epoch: None, lambda: None)
        await second.tick()
        assert second.held


async def test_a_standby_that_takes_over_an_empty_store_does_not_start_epochs_anew(nats_server: Any) -> None:
    bus = make_bus(nats_server.url)
    bucket, epochs = LeaseBucket(bus), list[int]()
    async with running(bus):
        first = Lease(bucket, "meta", "a", epochs.append, lambda: None)
        second = Lease(bucket, "meta", "b", epochs.append, lambda: None)
        for _ in range(3):
            await first.tick()
            await first.release()
        await first.tick()
        await second.tick()
        await bus.client.jetstream().delete_key_value(LEASE_BUCKET)
        while not second.held:
            await second.tick()
    assert epochs == [1, 2, 3, 4, 5]


async def test_who_sees_no_leader_warns_and_who_sees_one_does_not() -> None:
    now, trouble = [0.0], BucketUnavailable("no answer")

    class Bucket:
        """A bucket that cannot be reached, or that holds another copy's lease."""

        revision = 0

        async def get(self, key: str) -> tuple[bytes, int]:
            if not self.revision:
                raise trouble
            return observe_pb2.Lease(holder="b", epoch=1).SerializeToString(), self.revision

    bucket: Any = Bucket()
    lease = Lease(bucket, "meta", "a", lambda epoch: None, lambda: None, clock=lambda: now[0])
    with structlog.testing.capture_logs() as logs:
        for now[0] in range(11):
            await lease.tick()
        assert not logs
        for now[0] in range(11, 60):
            await lease.tick()
        assert [(entry["event"], entry["reason"]) for entry in logs] == [("nobody_leads", "no answer")]
        for now[0] in range(60, 200):
            bucket.revision += 1
            await lease.tick()
    assert len(logs) == 1
    assert counted(HELD.labels("meta")) == 0

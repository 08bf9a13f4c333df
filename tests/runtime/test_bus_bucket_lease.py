"""Bus, bucket and lease against a real nats-server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hmas.contracts.control import Hints, Pin, TopologyName
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.runtime.bus import Bus
from hmas.runtime.keeper import Keeper
from hmas.runtime.lease import Lease
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.subjects import CONTROL_BUCKET

PIN = Pin("pool", TopologyName.EDF, Hints(), "operator")


async def eventually(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(bus: Bus, *more: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(c()) for c in (bus.run, *more)]
    try:
        await asyncio.wait_for(bus.wait_connected(), 10)
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
        await bucket.put("pin.x", PIN)
        first = await bucket.read(Pin, "pin.x")
        await asyncio.sleep(0.2)
        second = await bucket.read(Pin, "pin.x")
    assert first is not None
    assert second is not None
    assert 0 <= first[1] < second[1]
    assert second[1] >= 0.2


async def test_the_keeper_writes_the_newest_value(nats_server: Any) -> None:
    bus = make_bus(nats_server.url)
    bucket = ControlBucket(bus, "test")
    keeper = Keeper(bucket)
    last = Pin("pool", TopologyName.SJF, Hints(), "b")
    async with running(bus, keeper.run):
        keeper.keep("pin.x", PIN)
        keeper.keep("pin.x", last)
        async with asyncio.timeout(10):
            while (read := await bucket.read(Pin, "pin.x")) is None or read[0] != last:
                await asyncio.sleep(0.01)


async def test_the_epoch_grows_with_every_take_over_and_one_holds_the_lease(nats_server: Any) -> None:
    bus, now = make_bus(nats_server.url), [0.0]
    bucket = ControlBucket(bus, "test")
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

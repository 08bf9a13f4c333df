"""Following an engine's KV events: the count is true from the start or a clear on, over gaps, losses and restarts."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import zmq.asyncio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import encode as pack
from structlog.testing import capture_logs

from hmas.contracts.worker import KvCacheCounted
from hmas.engine.kv_events import KvEventsPublisher
from hmas.engine.kv_events_config import KvPublisherConfig
from hmas.mesh.ports import free_port
from hmas.worker.adapters.block_count import MAX_EVENTS, MAX_FIELDS, MAX_HASHES, BlockCount, read_batch
from hmas.worker.adapters.kv_events import KvEvents
from hmas.worker.adapters.kv_events_config import KvEventsConfig, address_of
from tests.conftest import PATIENCE_S, eventually


def stored(*hashes: int) -> dict[str, Any]:
    return {"type": "BlockStored", "block_hashes": [bytes([h]) for h in hashes], "medium": "GPU"}


def removed(*hashes: int) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU"}


CLEARED = {"type": "AllBlocksCleared"}


def counted(*batches: tuple[int, float, list[Any]]) -> BlockCount:
    count = BlockCount()
    for number, at, events in batches:
        count.count(number, read_batch(pack([at, events, 0])))
    return count


def test_blocks_are_counted_from_the_engines_start_on() -> None:
    count = counted((0, 1.0, [stored(1, 2, 3)]), (1, 2.0, [removed(1), stored(4)]))
    assert count.blocks == 3
    assert count.take("e") == KvCacheCounted(engine="e", blocks=3, stored=4, removed=1)
    assert count.take("e") == KvCacheCounted(engine="e", blocks=3)


def test_without_the_start_the_count_is_unknown_until_all_is_cleared() -> None:
    count = counted((7, 1.0, [stored(1)]))
    assert count.take("e") == KvCacheCounted(engine="e", blocks=None, stored=1, cleared=True)
    count.count(8, read_batch(pack([2.0, [CLEARED, stored(1)], 0])))
    assert count.take("e") == KvCacheCounted(engine="e", blocks=1, stored=1, cleared=True)


def test_a_gap_makes_it_unknown_and_a_batch_that_came_is_left_out() -> None:
    count = counted((0, 1.0, [stored(1)]), (1, 2.0, [stored(2)]), (0, 1.0, [stored(1)]), (1, 2.0, [stored(2)]))
    assert (count.blocks, count.cleared) == (2, False)
    assert count.misses(3)
    count.count(3, read_batch(pack([4.0, [stored(5)], 0])))
    assert (count.blocks, count.cleared) == (None, True)


@pytest.mark.parametrize(("number", "blocks"), [(0, 1), (1, None)])
def test_an_engine_that_starts_anew_has_nothing_cached(number: int, blocks: int | None) -> None:
    count = counted((0, 1.0, [stored(1)]), (1, 2.0, [stored(2)]), (number, 3.0, [stored(9)]))
    assert (count.blocks, count.cleared) == (blocks, True)


def test_events_of_other_versions_and_media_are_understood() -> None:
    old = [["BlockStored", [1, 2], None, [5, 6], 16, None, "GPU"], ["BlockRemoved", [1], "GPU"], ["AllBlocksCleared"]]
    elsewhere = [["BlockStored", [1], None, [], 16, None, "CPU"], stored(3) | {"medium": "STORAGE"}]
    assert counted((0, 1.0, old[:2])).blocks == 1
    assert counted((0, 1.0, old)).blocks == 0
    assert counted((0, 1.0, elsewhere)).blocks == 0
    count = BlockCount()
    count.count(0, read_batch(pack({"ts": 1.0, "events": [stored(1)], "data_parallel_rank": 0})))
    assert count.blocks == 1


@pytest.mark.parametrize(
    "batch", [None, 3, [], [1.0], [1.0, 2], ["x", []], [1.0, [3]], [1.0, [[]]], [1.0, [[4, []]]], {}, {"ts": 1.0}]
)
def test_what_is_no_batch_is_refused(batch: Any) -> None:
    with pytest.raises(ValueError, match=r"batch|event"):
        read_batch(pack(batch))


BATCHES = st.binary(max_size=40) | st.recursive(
    st.none() | st.booleans() | st.integers(-9, 300) | st.floats() | st.sampled_from(["BlockStored", "ts", "events"]),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.sampled_from(["ts", "events", "type"]), each),
    max_leaves=20,
).map(pack).flatmap(lambda data: st.integers(0, len(data)).map(lambda n: data[:n]))  # fmt: skip


@given(BATCHES)
def test_any_bytes_are_counted_or_refused(payload: bytes) -> None:
    try:
        read_batch(payload)
    except ValueError:
        pass


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xc1", pack([1.0, []]) + b"\x01", b"\x92\x01\xdd\xff\xff\xff\xff", b"\x91" * 100_000 + b"\x01",
        b"\x92\x01" + b"\x91" * 100_000, b"\x82\xa2ts\x01\xa1x" + b"\x91" * 100_000,
        b"\x92\x01\x91\x91\xd9\x02\xff\xff",
    ],
    ids=["nothing", "no type", "more than a value", "4 G events", "deep", "deep events", "deep elsewhere", "no UTF-8"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="no batch of KV events"):
        read_batch(payload)


@pytest.mark.parametrize(
    "payload",
    [
        pack([1.0, [{"type": "x"}] * (MAX_EVENTS + 1)]), pack({"ts": 1.0, "events": [["x"]] * (MAX_EVENTS + 1)}),
        pack([1.0, [stored() | {"block_hashes": [1] * (MAX_HASHES + 1)}]]),
        pack([1.0, [["BlockStored", [1] * (MAX_HASHES + 1)]]]), pack([1.0, [["x"] * (MAX_FIELDS + 1)]]),
        pack([1.0, []] + [0] * MAX_FIELDS), b"\x92\x01\xdd\x00\xff\xff\xff" + b"\x90" * 0xFFFFFF,
    ],
    ids=["events", "in a map", "hashes", "in an array", "fields", "fields of a batch", "16 MiB of empty events"],
)  # fmt: skip
def test_more_than_a_batch_may_have_is_not_read(payload: bytes) -> None:
    """How many there are is looked at first: what would be made of 16 MiB took a gigabyte."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="no batch of KV events: Expected `array` of length <="):
            read_batch(payload)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


def test_as_much_as_a_batch_may_have_is_counted() -> None:
    events = [["BlockStored", [1], *range(MAX_FIELDS - 2)], *[["BlockRemoved", [1], "GPU"]] * (MAX_EVENTS - 1)]
    events[0][6] = "GPU"
    assert len(read_batch(pack([1.0, events, *range(MAX_FIELDS - 2)]))[1]) == MAX_EVENTS


def test_a_batch_that_is_half_understood_is_not_counted() -> None:
    count = counted((0, 1.0, [stored(1)]))
    with pytest.raises(ValueError, match="batch"):
        count.count(1, read_batch(pack([2.0, [stored(2), ["BlockStored", "hashes"]], 0])))
    assert (count.blocks, count.stored, count.next) == (1, 1, 1)


def test_events_of_a_kind_that_is_not_known_are_left_out() -> None:
    assert counted((0, 1.0, [stored(1), {"type": "BlockMoved"}, ["BlockMoved", 3, {}], ["BlockPinned"]])).blocks == 1


@pytest.mark.parametrize("url", ["tcp://*:5557", "ipc:///tmp/x", "tcp://host", "http://host:1", "tcp://host:0"])
def test_an_address_that_cannot_be_connected_to_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="give tcp://HOST:PORT"):
        address_of(url)


class Seeing(zmq.asyncio.Context):
    """Makes publishers that see who subscribes."""

    def socket(self, kind: int, *given: Any, **more: Any) -> Any:  # type: ignore[override]
        made = super().socket(zmq.XPUB if kind == zmq.PUB else kind, *given, **more)
        if kind == zmq.PUB:
            made.xpub_verbose = True  # also of one who comes before the last has gone
        return made


def publisher_of(config: KvPublisherConfig) -> KvEventsPublisher:
    publisher = KvEventsPublisher(config, 16)
    publisher._context = Seeing()
    return publisher


class Follower:
    """Follows a publisher, which can be ended and begun anew on its ports."""

    def __init__(
        self, replay: bool, hwm: int = 1_000, buffer_steps: int = 50, timeout_s: float = 15.0, **config: Any
    ) -> None:
        self.published = KvPublisherConfig(
            "127.0.0.1", free_port(), free_port() if replay else 0, buffer_steps=buffer_steps, hwm=hwm
        )
        self.publisher = publisher_of(self.published)
        url = f"tcp://127.0.0.1:{self.published.port}"
        replay_url = f"tcp://127.0.0.1:{self.published.replay_port}" if replay else ""
        self.reports: list[KvCacheCounted] = []
        told = KvEventsConfig(url=url, replay_url=replay_url, period_s=0.0, retry_s=0.02, timeout_s=timeout_s, **config)
        self.events = KvEvents("e", told, self.reports.append)
        self.task = asyncio.create_task(asyncio.sleep(0))

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.publisher.stop()

    @property
    def blocks(self) -> int | None:
        return self.reports[-1].blocks if self.reports else None

    async def followed(self, reports: int = 0) -> None:
        """Waits until the publisher is followed, which is reported after so many other reports, and knows it."""
        await eventually(lambda: len(self.reports) > reports)
        assert self.publisher._events is not None
        async with asyncio.timeout(PATIENCE_S):
            while await self.publisher._events.recv() != b"\x01":
                pass

    async def restart(self) -> None:
        self.publisher.stop()
        await eventually(lambda: self.blocks is None)
        self.publisher = publisher_of(self.published)
        await self.publisher.start()
        await self.followed(len(self.reports))

    def lose(self, *events: Any) -> None:
        """Publishes what does not arrive."""
        socket, self.publisher._events = self.publisher._events, None
        self.publisher.publish(list(events))
        self.publisher._events = socket


@pytest.fixture
async def following() -> AsyncIterator[Callable[..., Any]]:
    begun: list[Follower] = []

    async def follow(*, replay: bool = True, publishing: bool = True, before: Any = (), **config: Any) -> Follower:
        follower = Follower(replay, **config)
        begun.append(follower)
        for events in before:
            follower.publisher.publish(events)
        if publishing:
            await follower.publisher.start()
        follower.task = asyncio.create_task(follower.events.run())
        return follower

    yield follow
    for follower in begun:
        await follower.stop()


async def test_what_was_published_before_is_asked_for(following: Any) -> None:
    follower = await following(before=[[("stored", [1, 2, 3])], [("removed", [1])]])
    await eventually(lambda: follower.blocks == 2)
    follower.publisher.publish([("stored", [4])])
    await eventually(lambda: follower.blocks == 3)
    follower.publisher.publish([("cleared", []), ("stored", [5])])
    await eventually(lambda: follower.blocks == 1)
    assert follower.reports[-1].cleared


async def test_a_lost_connection_makes_the_count_unknown_until_it_is_there_again(following: Any) -> None:
    follower = await following()
    await follower.followed()
    follower.publisher.publish([("stored", [1, 2])])
    await eventually(lambda: follower.blocks == 2)
    follower.publisher.stop()
    await eventually(lambda: follower.blocks is None)
    assert not follower.reports[-1].cleared  # the engine may go on, and with it what it has cached
    publisher, follower.publisher = follower.publisher, publisher_of(follower.published)
    follower.publisher._kept, follower.publisher._number = publisher._kept, publisher._number
    follower.publisher.publish([("stored", [3])])
    await follower.publisher.start()
    await eventually(lambda: follower.blocks == 3)
    assert not any(report.cleared for report in follower.reports)


@pytest.mark.parametrize("replay", [True, False])
async def test_an_engine_that_was_started_again_has_nothing_cached(following: Any, replay: bool) -> None:
    follower = await following(replay=replay)
    await follower.followed()
    follower.publisher.publish([("stored", [1, 2])])
    await eventually(lambda: follower.blocks == 2)
    await follower.restart()
    follower.publisher.publish([("stored", [7])])
    await eventually(lambda: follower.blocks == 1)
    assert any(report.cleared for report in follower.reports)


async def test_a_gap_is_filled_by_a_replay(following: Any) -> None:
    follower = await following()
    await follower.followed()
    follower.publisher.publish([("stored", [1])])
    await eventually(lambda: follower.blocks == 1)
    follower.lose(("stored", [2, 3]))
    follower.publisher.publish([("removed", [1])])
    await eventually(lambda: follower.blocks == 2)
    assert not any(report.cleared for report in follower.reports)


async def test_an_engine_that_publishes_nothing_is_tried_again(following: Any) -> None:
    follower = await following(publishing=False)
    follower.events._connected = tried = Mock(wraps=follower.events._connected)
    await eventually(lambda: tried.call_count >= 3)
    assert [report.blocks for report in follower.reports] == [None]
    reports = len(follower.reports)
    await follower.publisher.start()
    await follower.followed(reports)
    follower.publisher.publish([("stored", [1])])
    await eventually(lambda: follower.blocks == 1)


def connections() -> int:
    """What follows a publisher in this process: its connections, as the loop's tasks for signs of life."""
    return sum("Connection._beat" in repr(task) for task in asyncio.all_tasks())


@pytest.mark.parametrize("publishing", [True, False])
async def test_nothing_is_left_where_it_is_not_followed_any_more(following: Any, publishing: bool) -> None:
    follower = await following(publishing=publishing)
    await eventually(lambda: bool(follower.reports))
    follower.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await follower.task
    await eventually(lambda: connections() == 0)


@pytest.mark.parametrize(
    "message",
    [[b"", b"12345678", b"\xc1"], [b"x"], [b"", b"1", b"x"], [b"", bytes(8), bytes(20_000)]],
    ids=["no MessagePack", "a frame", "no number", "too large"],
)
async def test_messages_that_are_none_end_the_connection(following: Any, message: list[bytes]) -> None:
    """What is counted then comes from a new one."""
    follower = await following(max_bytes=10_000)
    await follower.followed()
    with capture_logs() as logs:
        for blocks in (2, 4):
            follower.publisher.publish([("stored", [1, 2])])
            await eventually(partial(lambda blocks: follower.blocks == blocks, blocks))
            follower.reports.clear()
            await follower.publisher._events.send_multipart(message)
            await follower.followed(1)
            assert follower.reports[0].blocks is None
    assert follower.blocks == 4
    assert len([line for line in logs if line["event"] == "kv_events_lost"]) == 2


@pytest.mark.parametrize("replay", [True, False])
async def test_what_a_slow_follower_misses_is_a_gap(following: Any, replay: bool) -> None:
    """The publisher drops what does not fit into a connection, until the follower reads again."""
    follower = await following(replay=replay, hwm=1, buffer_steps=3_000)
    await follower.followed()
    for _ in range(1_200):  # 12 MB
        follower.publisher.publish([("stored", list(range(1_000)))])
    stored = 1_200_000

    def known_again() -> bool:
        nonlocal stored
        stored += 1
        follower.publisher.publish([("stored", [1])])
        return any(report.cleared for report in follower.reports) or follower.blocks == stored - 1

    await eventually(known_again)
    cleared = any(report.cleared for report in follower.reports)
    assert cleared != replay
    assert follower.blocks == (stored - 1 if replay else None)


async def test_a_replay_that_does_not_come_is_not_waited_for(following: Any) -> None:
    """Its socket is there, but answers nothing."""
    follower = await following(timeout_s=2.0)
    follower.publisher._replaying.cancel()
    with capture_logs() as logs:
        await follower.followed()
        follower.publisher.publish([("stored", [1])])
        await eventually(lambda: follower.blocks == 1)
    assert [line["event"] for line in logs][-2:] == ["kv_events_not_replayed", "kv_events_followed"]


async def test_a_replay_is_bounded(following: Any) -> None:
    follower = await following(max_replayed=3, before=[[("stored", [1])]] * 10)
    with capture_logs() as logs:
        await follower.followed()
    assert "more than 3 batches" in logs[0]["reason"]
    assert (follower.events._count.next, follower.blocks) == (3, None)
    follower.publisher.publish([("stored", [1])])
    await eventually(lambda: any(report.cleared for report in follower.reports))
    assert follower.blocks is None


async def test_a_port_that_is_not_free_is_named(following: Any) -> None:
    follower = await following()
    with pytest.raises(OSError, match=f"cannot be published on 127.0.0.1:{follower.published.port}"):
        await publisher_of(follower.published).start()

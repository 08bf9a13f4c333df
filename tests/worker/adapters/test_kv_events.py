"""Following an engine's KV events: the count is true from the start or a clear on, over gaps, losses and restarts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hmas.contracts.worker import KvCacheCounted
from hmas.engine.kv_events import KvEventsPublisher, KvPublisherConfig
from hmas.runtime.msgpack import pack
from hmas.worker.adapters.kv_events import BlockCount, KvEvents, KvEventsConfig, address_of
from tests.conftest import eventually
from tests.engines.engine_server import free_port


def stored(*hashes: int) -> dict[str, Any]:
    return {"type": "BlockStored", "block_hashes": [bytes([h]) for h in hashes], "medium": "GPU"}


def removed(*hashes: int) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU"}


CLEARED = {"type": "AllBlocksCleared"}


def counted(*batches: tuple[int, float, list[Any]]) -> BlockCount:
    count = BlockCount()
    for number, at, events in batches:
        count.count(number, pack([at, events, 0]))
    return count


def test_blocks_are_counted_from_the_engines_start_on() -> None:
    count = counted((0, 1.0, [stored(1, 2, 3)]), (1, 2.0, [removed(1), stored(4)]))
    assert count.blocks == 3
    assert count.take("e") == KvCacheCounted(engine="e", blocks=3, stored=4, removed=1)
    assert count.take("e") == KvCacheCounted(engine="e", blocks=3)


def test_without_the_start_the_count_is_unknown_until_all_is_cleared() -> None:
    count = counted((7, 1.0, [stored(1)]))
    assert count.take("e") == KvCacheCounted(engine="e", blocks=None, stored=1, cleared=True)
    count.count(8, pack([2.0, [CLEARED, stored(1)], 0]))
    assert count.take("e") == KvCacheCounted(engine="e", blocks=1, stored=1, cleared=True)


def test_a_gap_makes_it_unknown_and_a_batch_that_came_is_left_out() -> None:
    count = counted((0, 1.0, [stored(1)]), (1, 2.0, [stored(2)]), (0, 1.0, [stored(1)]), (1, 2.0, [stored(2)]))
    assert (count.blocks, count.cleared) == (2, False)
    assert count.misses(3)
    count.count(3, pack([4.0, [stored(5)], 0]))
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
    count.count(0, pack({"ts": 1.0, "events": [stored(1)], "data_parallel_rank": 0}))
    assert count.blocks == 1


@pytest.mark.parametrize(
    "batch", [None, 3, [], [1.0], [1.0, 2], ["x", []], [1.0, [3]], [1.0, [[]]], [1.0, [[4, []]]], {}, {"ts": 1.0}]
)
def test_what_is_no_batch_is_refused(batch: Any) -> None:
    with pytest.raises(ValueError, match=r"batch|event"):
        BlockCount().count(0, pack(batch))


@pytest.mark.parametrize("url", ["tcp://*:5557", "ipc:///tmp/x", "tcp://host", "http://host:1", "tcp://host:0"])
def test_an_address_that_cannot_be_connected_to_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="give tcp://HOST:PORT"):
        address_of(url)


class Follower:
    """Follows a publisher, which can be ended and begun anew on its ports."""

    def __init__(self, replay: bool) -> None:
        self.published = KvPublisherConfig("127.0.0.1", free_port(), free_port() if replay else 0, buffer_steps=50)
        self.publisher = KvEventsPublisher(self.published, 16)
        url = f"tcp://127.0.0.1:{self.published.port}"
        replay_url = f"tcp://127.0.0.1:{self.published.replay_port}" if replay else ""
        self.reports: list[KvCacheCounted] = []
        config = KvEventsConfig(url=url, replay_url=replay_url, period_s=0.0, retry_s=0.02)
        self.events = KvEvents("e", config, self.reports.append)

    @property
    def blocks(self) -> int | None:
        return self.reports[-1].blocks if self.reports else None

    async def subscribed(self) -> None:
        await eventually(lambda: bool(self.publisher._subscribers))

    async def restart(self) -> None:
        self.publisher.stop()
        self.publisher = KvEventsPublisher(self.published, 16)
        await self.publisher.start()


@pytest.fixture
async def following() -> AsyncIterator[Callable[..., Any]]:
    begun: list[tuple[Follower, asyncio.Task[None]]] = []

    async def follow(*, replay: bool = True, publishing: bool = True) -> Follower:
        follower = Follower(replay)
        if publishing:
            await follower.publisher.start()
        begun.append((follower, asyncio.create_task(follower.events.run())))
        return follower

    yield follow
    for follower, task in begun:
        task.cancel()
        follower.publisher.stop()
    await asyncio.gather(*(task for _, task in begun), return_exceptions=True)


async def test_what_was_published_before_is_asked_for(following: Any) -> None:
    follower = Follower(True)
    follower.publisher.publish([("stored", [1, 2, 3])])
    follower.publisher.publish([("removed", [1])])
    await follower.publisher.start()
    task = asyncio.create_task(follower.events.run())
    await eventually(lambda: follower.blocks == 2)
    follower.publisher.publish([("stored", [4])])
    await eventually(lambda: follower.blocks == 3)
    follower.publisher.publish([("cleared", []), ("stored", [5])])
    await eventually(lambda: follower.blocks == 1)
    assert follower.reports[-1].cleared
    task.cancel()
    follower.publisher.stop()


async def test_a_lost_connection_makes_the_count_unknown_until_it_is_there_again(following: Any) -> None:
    follower = await following()
    await follower.subscribed()
    follower.publisher.publish([("stored", [1, 2])])
    await eventually(lambda: follower.blocks == 2)
    follower.publisher.stop()
    await eventually(lambda: follower.blocks is None)
    assert not follower.reports[-1].cleared  # the engine may go on, and with it what it has cached
    publisher, follower.publisher = follower.publisher, KvEventsPublisher(follower.published, 16)
    follower.publisher._kept, follower.publisher._number = publisher._kept, publisher._number
    follower.publisher.publish([("stored", [3])])
    await follower.publisher.start()
    await eventually(lambda: follower.blocks == 3)
    assert not any(report.cleared for report in follower.reports)


@pytest.mark.parametrize("replay", [True, False])
async def test_an_engine_that_was_started_again_has_nothing_cached(following: Any, replay: bool) -> None:
    follower = await following(replay=replay)
    await follower.subscribed()
    follower.publisher.publish([("stored", [1, 2])])
    await eventually(lambda: follower.blocks == 2)
    await follower.restart()
    await follower.subscribed()
    follower.publisher.publish([("stored", [7])])
    await eventually(lambda: follower.blocks == 1)
    assert any(report.cleared for report in follower.reports)


async def test_a_gap_is_filled_by_a_replay(following: Any) -> None:
    follower = await following()
    await follower.subscribed()
    follower.publisher.publish([("stored", [1])])
    await eventually(lambda: follower.blocks == 1)
    for stream in follower.publisher._subscribers:
        stream.send = lambda frames: None  # a message that is lost
    follower.publisher.publish([("stored", [2, 3])])
    for stream in follower.publisher._subscribers:
        del stream.send
    follower.publisher.publish([("removed", [1])])
    await eventually(lambda: follower.blocks == 2)
    assert not any(report.cleared for report in follower.reports)


async def test_an_engine_that_publishes_nothing_is_tried_again(following: Any) -> None:
    follower = await following(publishing=False)
    await asyncio.sleep(0.1)
    assert [report.blocks for report in follower.reports] == [None]
    await follower.publisher.start()
    await follower.subscribed()
    follower.publisher.publish([("stored", [1])])
    await eventually(lambda: follower.blocks == 1)

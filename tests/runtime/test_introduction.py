"""The first heartbeat of a name waits for what the bucket keeps of it; the others do not."""

import asyncio

from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.runtime.introduction import MAX_KNOWN, MAX_READING, Introduction
from tests.builders.registry import worker_heartbeat


def heartbeat(worker: str, queued: int = 0) -> WorkerHeartbeat:
    return worker_heartbeat(
        worker, incarnation="1", address="", wire_version=1, queued=queued, max_queued=1, max_queued_tokens=1
    )


async def test_what_was_kept_is_restored_once_and_before_the_first_heartbeat() -> None:
    posted: list[object] = []
    read = asyncio.Event()

    async def restore(name: str) -> None:
        await read.wait()
        posted.append(f"restored {name}")

    introduction = Introduction(lambda each: each.worker, restore, posted.append)
    introduction.hear(heartbeat("w"))
    introduction.hear(heartbeat("w", queued=1))  # while the bucket is read: the next one tells the same, but newer
    await asyncio.sleep(0)
    assert posted == []
    assert not introduction.known
    read.set()
    while not introduction.known:
        await asyncio.sleep(0)
    introduction.hear(heartbeat("w", queued=2))
    assert posted == ["restored w", HeartbeatReceived(heartbeat("w")), HeartbeatReceived(heartbeat("w", queued=2))]


async def test_made_up_names_fill_neither_the_memory_nor_the_bucket_s_queue() -> None:
    posted: list[object] = []
    reading, go_on = [0], asyncio.Event()

    async def restore(name: str) -> None:
        reading[0] += 1
        await go_on.wait()

    introduction = Introduction(lambda each: each.worker, restore, posted.append)
    for i in range(1000):
        introduction.hear(heartbeat(f"stranger-{i}"))
    await asyncio.sleep(0)
    assert reading[0] == MAX_READING
    go_on.set()
    for i in range(3000):
        introduction.hear(heartbeat(f"stranger-{i}"))
        introduction.hear(heartbeat("w"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(introduction.known) == MAX_KNOWN
    assert "w" in introduction.known

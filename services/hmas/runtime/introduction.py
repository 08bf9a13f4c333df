"""Holds back the first heartbeat of a worker or pool until what the bucket keeps of it has been read."""

import asyncio
from collections.abc import Awaitable, Callable

from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat


class Introduction:
    """Posts heartbeats to an agent; the first of each name only after `restore(name)` has ended.

    `name_of` tells the name of a heartbeat: its worker or its pool. `restore` must not raise.
    """

    def __init__(
        self,
        name_of: Callable[[WorkerHeartbeat], str],
        restore: Callable[[str], Awaitable[None]],
        post: Callable[[object], None],
    ) -> None:
        self._name_of = name_of
        self._restore = restore
        self._post = post
        self.known: set[str] = set()  # names that were restored
        self._reading: dict[str, asyncio.Task[None]] = {}

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        name = self._name_of(heartbeat)
        if name in self.known:
            self._post(HeartbeatReceived(heartbeat))
        elif name not in self._reading:
            self._reading[name] = asyncio.create_task(self._introduce(name, heartbeat))

    async def _introduce(self, name: str, heartbeat: WorkerHeartbeat) -> None:
        await self._restore(name)
        self.known.add(name)
        self._post(HeartbeatReceived(heartbeat))
        del self._reading[name]

"""Holds back the first heartbeat of a worker or pool until what the bucket keeps of it has been read."""

import asyncio
from collections.abc import Awaitable, Callable

from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat

MAX_KNOWN = 1024
MAX_READING = 64  # a name for which there is no room comes again with its next heartbeat


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
        self.known: dict[str, None] = {}  # names that were restored, the one heard of longest ago first
        self._reading: dict[str, asyncio.Task[None]] = {}

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        name = self._name_of(heartbeat)
        if name in self.known:
            self.known[name] = self.known.pop(name)
            self._post(HeartbeatReceived(heartbeat))
        elif name not in self._reading and len(self._reading) < MAX_READING:
            self._reading[name] = asyncio.create_task(self._introduce(name, heartbeat))

    async def _introduce(self, name: str, heartbeat: WorkerHeartbeat) -> None:
        await self._restore(name)
        self.known[name] = None
        if len(self.known) > MAX_KNOWN:
            del self.known[next(iter(self.known))]
        self._post(HeartbeatReceived(heartbeat))
        del self._reading[name]

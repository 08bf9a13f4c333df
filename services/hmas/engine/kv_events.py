"""Publishes the events of the emulated engine's KV cache over ZeroMQ, as vLLM does with `--kv-events-config`."""

import asyncio
from collections import deque
from time import time
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from hmas.engine.core.kv_cache import CacheEvent
from hmas.engine.kv_events_config import KvPublisherConfig

END_OF_REPLAY = (2**64 - 1).to_bytes(8, "big")
MAX_REQUEST_BYTES = 1_024  # of what subscribers send
HANDSHAKE_MS = 3_000  # how long a connection may take until it speaks ZeroMQ
_KINDS = {"stored": "BlockStored", "removed": "BlockRemoved", "cleared": "AllBlocksCleared"}


class KvEventsPublisher:
    """The publisher of one engine. `publish` never waits."""

    def __init__(self, config: KvPublisherConfig, block_size: int) -> None:
        self._config, self._block_size = config, block_size
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=config.buffer_steps)
        self._number = 0
        self._context = zmq.asyncio.Context()
        self._events: zmq.asyncio.Socket | None = None
        self._replaying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listens. Raises OSError if a port is not free."""
        config = self._config
        events = self._context.socket(zmq.PUB)
        self._bind(events, config.port, config.hwm)
        self._events = events
        if config.replay_port:
            replay = self._context.socket(zmq.ROUTER)
            self._bind(replay, config.replay_port, config.buffer_steps + 1)  # a whole replay
            self._replaying = asyncio.create_task(self._replay(replay))

    def stop(self) -> None:
        self._events = None
        if self._replaying is not None:
            self._replaying.cancel()
        self._context.destroy(linger=0)

    def publish(self, events: list[CacheEvent]) -> None:
        """Publishes what happened to the cache in a step, in its order."""
        payload = msgspec.msgpack.encode([time(), [self._event(kind, blocks) for kind, blocks in events], 0])
        number, self._number = self._number, self._number + 1
        self._kept.append((number, payload))
        if self._events is not None:
            self._events.send_multipart([b"", number.to_bytes(8, "big"), payload])  # at once, or to nobody

    def _bind(self, socket: zmq.asyncio.Socket, port: int, waiting: int) -> None:
        host = self._config.host
        socket.linger, socket.maxmsgsize, socket.sndhwm, socket.ipv6 = 0, MAX_REQUEST_BYTES, waiting, ":" in host
        socket.handshake_ivl = HANDSHAKE_MS
        try:
            socket.bind(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            self.stop()
            raise OSError(error.errno, f"KV events cannot be published on {host}:{port}: {error.strerror}") from error

    def _event(self, kind: str, blocks: list[int]) -> dict[str, Any]:
        event: dict[str, Any] = {"type": _KINDS[kind]}
        if kind == "cleared":
            return event
        event |= {"block_hashes": [(block % 2**64).to_bytes(8, "big") for block in blocks], "medium": "GPU"}
        if kind == "stored":
            event |= {"parent_block_hash": None, "token_ids": [], "block_size": self._block_size, "lora_id": None}
        return event

    async def _replay(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            client, *_, start = await socket.recv_multipart()
            for number, payload in list(self._kept):
                if number >= int.from_bytes(start, "big"):
                    await asyncio.sleep(0)  # the engine's steps come first
                    await socket.send_multipart([client, b"", number.to_bytes(8, "big"), payload])
            await socket.send_multipart([client, b"", END_OF_REPLAY, b""])

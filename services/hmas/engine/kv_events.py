"""Publishes the events of the emulated engine's KV cache over ZeroMQ, as vLLM does with `--kv-events-config`."""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any
from urllib.parse import urlsplit

from hmas.engine.core.kv_cache import CacheEvent
from hmas.runtime.msgpack import pack
from hmas.runtime.zmtp import ZmtpError, ZmtpStream

END_OF_REPLAY = (2**64 - 1).to_bytes(8, "big")
MAX_REQUEST_BYTES = 1_024  # of what subscribers send
MAX_BACKLOG_BYTES = 16 * 2**20  # of a subscriber, beyond which its connection is closed
_KINDS = {"stored": "BlockStored", "removed": "BlockRemoved", "cleared": "AllBlocksCleared"}


@dataclass(frozen=True, slots=True)
class KvPublisherConfig:
    """`port`, `replay_port`: on which subscribers are heard, and requests for what was published before (0: none are).
    `buffer_steps`: batches that are kept for these."""

    host: str
    port: int
    replay_port: int = 0
    buffer_steps: int = 10_000

    @staticmethod
    def parse(text: str) -> "KvPublisherConfig":
        """Reads what vLLM's flag takes. Raises ValueError if it is unusable."""
        told = json.loads(text)
        if not isinstance(told, dict) or told.get("publisher", "zmq") != "zmq":
            raise ValueError('--kv-events-config takes {"endpoint": "tcp://*:PORT", "replay_endpoint": "tcp://*:PORT"}')
        host, port = _bound(told.get("endpoint", "tcp://*:5557"))
        replay = told.get("replay_endpoint")
        return KvPublisherConfig(host, port, _bound(replay)[1] if replay else 0, int(told.get("buffer_steps", 10_000)))


class KvEventsPublisher:
    """The publisher of one engine. `publish` never waits."""

    def __init__(self, config: KvPublisherConfig, block_size: int) -> None:
        self._config, self._block_size = config, block_size
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=config.buffer_steps)
        self._number = 0
        self._subscribers: set[ZmtpStream] = set()
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listens. Raises OSError if a port is not free."""
        config = self._config
        for port, kind, serve in ((config.port, "PUB", self._subscribe), (config.replay_port, "ROUTER", self._replay)):
            if port:
                greet = partial(_serve, kind, serve)
                self._servers.append(await asyncio.start_server(greet, config.host, port))

    def stop(self) -> None:
        for server in self._servers:
            server.close()
        for stream in list(self._subscribers):
            stream.close()

    def publish(self, events: list[CacheEvent]) -> None:
        """Publishes what happened to the cache in a step, in its order."""
        payload = pack([time(), [self._event(kind, blocks) for kind, blocks in events], 0])
        number, self._number = self._number, self._number + 1
        self._kept.append((number, payload))
        for stream in list(self._subscribers):
            if stream.backlog > MAX_BACKLOG_BYTES:
                stream.close()
            else:
                stream.send([b"", number.to_bytes(8, "big"), payload])

    def _event(self, kind: str, blocks: list[int]) -> dict[str, Any]:
        event: dict[str, Any] = {"type": _KINDS[kind]}
        if kind == "cleared":
            return event
        event |= {"block_hashes": [(block % 2**64).to_bytes(8, "big") for block in blocks], "medium": "GPU"}
        if kind == "stored":
            event |= {"parent_block_hash": None, "token_ids": [], "block_size": self._block_size, "lora_id": None}
        return event

    async def _subscribe(self, stream: ZmtpStream) -> None:
        self._subscribers.add(stream)
        try:
            while True:
                await stream.receive()  # what it subscribes to: every subscriber gets all
        finally:
            self._subscribers.discard(stream)

    async def _replay(self, stream: ZmtpStream) -> None:
        while True:
            *_, start = await stream.receive()
            for number, payload in list(self._kept):
                if number >= int.from_bytes(start, "big"):
                    stream.send([b"", number.to_bytes(8, "big"), payload])
            stream.send([b"", END_OF_REPLAY, b""])


async def _serve(
    kind: str,
    serve: Callable[[ZmtpStream], Coroutine[None, None, None]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    stream = ZmtpStream(reader, writer, MAX_REQUEST_BYTES)
    try:
        with suppress(ZmtpError, OSError, EOFError):
            await stream.greet(kind)
            await serve(stream)
    finally:
        stream.close()


def _bound(endpoint: Any) -> tuple[str, int]:
    parts = urlsplit(endpoint if isinstance(endpoint, str) else "")
    if parts.scheme != "tcp" or not parts.hostname or not parts.port:
        raise ValueError(f"the endpoint {endpoint!r} of KV events is unusable: give tcp://*:PORT")
    return "0.0.0.0" if parts.hostname == "*" else parts.hostname, parts.port

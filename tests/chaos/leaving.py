"""A client that asks over a connection of its own, and can leave at any moment."""

import asyncio
import json
from urllib.parse import urlsplit


class LeavingClient:
    """One request for a completion; `leave` closes the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def asks(
        cls, url: str, *, stream: bool, words: int = 10, output_tokens: int = 500, sent: float = 1.0
    ) -> "LeavingClient":
        """Sends the first part, `sent`, of a request's body."""
        body = json.dumps(
            {
                "model": "emulated", "prompt": "why " * words, "max_tokens": output_tokens, "stream": stream,
                "hmas_replay": {"output_tokens": output_tokens},
            }
        ).encode()  # fmt: skip
        parts = urlsplit(url)
        client = cls(*await asyncio.open_connection(parts.hostname, parts.port))
        head = f"POST /v1/completions HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-length: {len(body)}\r\n\r\n"
        client._writer.write(head.encode() + body[: int(sent * len(body))])
        await client._writer.drain()
        return client

    async def has_tokens(self, count: int) -> None:
        """Returns when so many events of the stream have come."""
        while count > 0:
            count -= (await self._reader.readline()).startswith(b"data:")

    def leave(self) -> None:
        self._writer.close()

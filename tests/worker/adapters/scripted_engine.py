"""A small scripted HTTP server on raw sockets: each request is answered by the next handler."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Handler = Callable[["Peer"], Awaitable[None]]


@dataclass(kw_only=True)
class Peer:
    """One request as it arrived, and the connection to answer on."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connection: int

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, body: bytes, status: int = 200, extra: str = "") -> None:
        await self.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body)

    async def begin_chunks(self) -> None:
        await self.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_chunks(self) -> None:
        await self.write(b"0\r\n\r\n")

    async def gone(self) -> None:
        """Waits until the client closed its connection."""
        while await self.reader.read(1024):
            pass


@dataclass
class ScriptedEngine:
    """`script[path]` answers; `requests` and `connections` tell what came."""

    script: dict[str, Handler] = field(default_factory=dict)
    requests: list[Peer] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As if it were killed: its connections break."""
        if self._server is not None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                peer = Peer(
                    method=method,
                    path=path,
                    headers=headers,
                    body=body,
                    reader=reader,
                    writer=writer,
                    connection=number,
                )
                self.requests.append(peer)
                await self.script[path](peer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

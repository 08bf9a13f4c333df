"""Copies bytes between two sockets in both directions, on uvloop: the least that a hop through a Python process can
cost.

It is started as `python -m benchmarks.hop.relay_tcp PORT UPSTREAM_PORT`, and does not parse, check or count anything.
"""

import asyncio
import sys
from typing import cast

import uvloop


class End(asyncio.Protocol):
    """One of a pair of connections. Bytes received here are sent through the other one."""

    def __init__(self, other: "End | None") -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.early: list[bytes] = []  # bytes received before the other connection was open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class ClientSide(End):
    """The connection from the client; it opens the one to `upstream_port`."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__(None)
        self.upstream_port = upstream_port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.opening = asyncio.get_running_loop().create_task(self.open())

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        transport, self.other = await loop.create_connection(lambda: End(self), "127.0.0.1", self.upstream_port)
        transport.writelines(self.early)


async def main(port: int, upstream_port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: ClientSide(upstream_port), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))

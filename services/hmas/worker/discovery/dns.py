"""Finds engines by a DNS name, such as that of a headless service."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from hmas.runtime.logs import LogRateLimit
from hmas.worker.discovery.source import DnsSource
from hmas.worker.settings import EngineSettings

Found = Callable[[tuple[EngineSettings, ...]], None]
Resolve = Callable[[str, int], Awaitable[list[tuple[Any, ...]]]]  # as `getaddrinfo`


async def resolve_tcp(host: str, port: int) -> list[tuple[Any, ...]]:
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


class DnsEngines:
    """Asks for the addresses of a name every `period_s` seconds.

    A name that cannot be resolved changes nothing: whether the engines are still there is told by their health.
    """

    def __init__(self, source: DnsSource, period_s: float, resolve: Resolve = resolve_tcp) -> None:
        self._source, self._period_s, self._resolve = source, period_s, resolve
        self._sparingly = LogRateLimit()

    async def run(self, found: Found) -> None:
        while True:
            engines = await self.read()
            if engines:
                found(engines)
            await asyncio.sleep(self._period_s)

    async def read(self) -> tuple[EngineSettings, ...]:
        """Returns an engine for each address, in their order; none if the name cannot be resolved."""
        host, port = self._source.host, self._source.port
        try:
            answers = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:  # the latter of a label that is empty or too long
            reason = getattr(error, "strerror", None) or str(error)
            self._sparingly.warn("engines_not_resolved", host=host, reason=reason)
            return ()
        addresses = sorted({str(address[0]) for *_, address in answers})
        return tuple(EngineSettings(url=f"http://{_in_url(address)}:{port}") for address in addresses)


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address

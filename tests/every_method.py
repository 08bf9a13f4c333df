"""Every method on every path over every kind of connection. A client that reads answers as RFC 9112 frames them tells
where a request got no answer, the answer of another one, or more than one."""

import asyncio
from dataclasses import dataclass

from tests.conftest import PATIENCE_S

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "PURGE")
BODY = b"{}"
# The ways to send two requests: the second after the first one's answer, both at once, the first one's body in a part
# of its own, and the two that end the connection with the first answer.
KEPT, PIPELINED, PARTED, CLOSING, OLD = "kept", "pipelined", "parted", "closing", "HTTP/1.0"
WAYS = (KEPT, PIPELINED, PARTED, CLOSING, OLD)


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def closes(self) -> bool:
        return b"close" in self.headers.get(b"connection", b"").lower()


async def read_answer(reader: asyncio.StreamReader, method: str) -> Answered:
    """Returns the next answer of a connection. Raises IncompleteReadError if the connection ends before it does, and
    TimeoutError if it does not come."""
    async with asyncio.timeout(PATIENCE_S):
        line, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        assert line.startswith(b"HTTP/1."), line
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(b":") for each in lines)}
        status = int(line.split()[1])
        if method == "HEAD" or status in (204, 304):
            return Answered(status, headers, b"")
        if headers.get(b"transfer-encoding") == b"chunked":
            body = b""
            while size := int(await reader.readline(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
            return Answered(status, headers, body)
        if b"content-length" in headers:
            return Answered(status, headers, await reader.readexactly(int(headers[b"content-length"])))
        return Answered(status, headers, await reader.read())  # the end of the connection ends it


class EveryMethod:
    """Asks one server. `fence`: a path that GET always answers with 200 and with `fence_body`, which no other path's
    answer begins with. `more`: lines of each head."""

    def __init__(self, port: int, fence: str, fence_body: bytes, more: bytes = b"") -> None:
        self._port, self._fence, self._fence_body, self._more = port, fence, fence_body, more

    async def ask(self, method: str, path: str, way: str) -> Answered:
        """Returns the answer to one request, after which the next one of its connection got its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = BODY if method in ("POST", "PUT", "PATCH") else b""
        extra = b"connection: close\r\n" if way == CLOSING else b"connection: keep-alive\r\n"
        head = self._head(method, path, extra, body, b"1.0" if way == OLD else b"1.1")
        following = self._head("GET", self._fence, b"", b"")
        try:
            if way == PARTED:
                writer.write(head)
                await asyncio.sleep(0)
                writer.write(body)
            else:
                writer.write(head + body + (following if way == PIPELINED else b""))
            answer = await read_answer(reader, method)
            if way in (CLOSING, OLD) or (way == PARTED and answer.closes):
                async with asyncio.timeout(PATIENCE_S):
                    assert answer.closes
                    assert await reader.read() == b""
                return answer
            assert not answer.closes, answer
            if way != PIPELINED:
                writer.write(following)
            own = await read_answer(reader, "GET")
            assert own.status == 200
            assert own.body.startswith(self._fence_body), own
            return answer
        finally:
            writer.transport.abort()

    def _head(self, method: str, path: str, extra: bytes, body: bytes, version: bytes = b"1.1") -> bytes:
        length = b"content-length: %d\r\ncontent-type: application/json\r\n" % len(body) if body else b""
        line = b"%b %b HTTP/%b\r\nhost: localhost\r\n" % (method.encode(), path.encode(), version)
        return line + self._more + extra + length + b"\r\n"

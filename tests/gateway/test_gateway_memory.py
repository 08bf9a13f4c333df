"""Bytes that the gateway holds per byte of the bodies that clients send."""

import asyncio
import gc
import tracemalloc

import pytest

from hmas.gateway.http.bodies import BodyBounds
from hmas.gateway.http.server import HttpServerConfig
from tests.gateway.gateway_harness import HEAD, asking, gateway

SIZE = 150_000
START = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello"}],"x":'
SHAPES = {
    "lists": START + b"[" + b"[]," * (SIZE // 3) + b"0]}",
    "objects": START + b"[" + b"{}," * (SIZE // 3) + b"0]}",
    "fields": START + b"[" + b'{"a":0},' * (SIZE // 8) + b"0]}",
    "nested": START + b"[" + (b"[" * 100 + b"]" * 100 + b",") * (SIZE // 201) + b"0]}",
    "numbers": START + b"[" + b"1e3," * (SIZE // 4) + b"0]}",
    "text": START + b'"' + b"x" * SIZE + '\N{GRINNING FACE}"}'.encode(),
    "tokens": START + b"[" + b"17," * (SIZE // 3) + b"0]}",
}


async def send(port: int, data: bytes) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(data))
    writer.write(data)
    return writer


@pytest.mark.parametrize("shape", SHAPES)
async def test_bytes_held_per_byte_of_body(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests that wait keep their bodies as bytes, whatever their shape."""
    number, data = 5, SHAPES[shape]
    config = HttpServerConfig(body=BodyBounds(max_bytes=2 * SIZE))
    async with gateway(grants=False, server=config) as g:
        first = await asking(g)
        await g.until(lambda: g.shell.live == 1)
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        writers = [await send(g.port, data) for _ in range(number)]
        async with asyncio.timeout(60):  # parsing is slow while memory is traced
            while g.shell.live <= number:
                await asyncio.sleep(0.01)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for writer in (first[1], *writers):
            writer.close()
        ratio = (held - before) / (number * len(data))
        with capsys.disabled():
            print(f"\n{shape}: {ratio:.2f} bytes held per byte of body", end=" ")
        assert ratio <= 3.0

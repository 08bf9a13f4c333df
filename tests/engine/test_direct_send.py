"""Messages keep their order whether or not the transport makes them wait."""

import asyncio

from hmas.engine.direct_send import DirectSend, Message


async def test_sends_at_once_while_the_transport_takes_it() -> None:
    sent: list[object] = []

    async def send(message: Message) -> None:
        sent.append(message["n"])

    direct = DirectSend(send)
    direct({"n": 1})
    direct({"n": 2})
    assert sent == [1, 2]  # no await in between


async def test_a_slow_reader_delays_but_never_reorders() -> None:
    sent: list[object] = []
    writable = asyncio.Event()
    enough = asyncio.Semaphore(0)

    async def send(message: Message) -> None:
        await writable.wait()
        sent.append(message["n"])
        enough.release()

    direct = DirectSend(send)
    for n in range(3):
        direct({"n": n})
    assert sent == []
    writable.set()
    direct({"n": 3})  # not before those that still wait
    for _ in range(4):
        await enough.acquire()
    assert sent == [0, 1, 2, 3]

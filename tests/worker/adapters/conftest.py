import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from tests.worker.adapters.scripted_engine import ScriptedEngine

OVER_ZEROMQ = ("test_kv_events.py", "test_zeromq.py")


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Services run on uvloop; libzmq's sockets are tested on both event loops."""
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return both if item.path.name in OVER_ZEROMQ else {"asyncio": asyncio.new_event_loop}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    server = ScriptedEngine()
    await server.start()
    yield server
    await server.stop()

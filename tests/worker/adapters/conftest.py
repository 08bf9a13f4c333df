from collections.abc import AsyncIterator

import pytest

from tests.worker.adapters.scripted_engine import ScriptedEngine


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    server = ScriptedEngine()
    await server.start()
    yield server
    await server.stop()

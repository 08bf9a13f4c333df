"""One mesh with emulated engines for every end-to-end test that does not need its own."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("mesh")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HMAS_RECORD_DIR", str(folder / "recorded"))
        patch.setenv("HMAS_STREM_PORT", "7")  # misspelt: `test_command.py` reads what is said about it
        with start_mesh(folder, "--replay") as running:
            yield running


@pytest.fixture
def client(mesh: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=30) as c:
        yield c


@pytest.fixture
async def async_client(mesh: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=30) as c:
        yield c

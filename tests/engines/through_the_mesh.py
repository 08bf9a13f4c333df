"""What suites of a mesh in front of a real engine share: requests of the `openai` client, and what the mesh says."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import openai
import pytest

from tests.engines.engine_server import MODEL

PATIENCE_S = 240.0  # for what takes a second on an idle machine


async def stream(client: openai.AsyncOpenAI, prompt: str, tokens: int, **more: Any) -> AsyncGenerator[str, None]:
    chunks = await client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=tokens, stream=True, extra_body={"ignore_eos": True, **more}
    )
    async for chunk in chunks:
        yield chunk.choices[0].text


async def reached(condition: Callable[[], bool]) -> None:
    """Asks metrics off the loop, until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


def worker_metric(mesh: Any, name: str) -> float:
    page = httpx.get(f"{mesh.state['ops_urls']['worker-1']}/metrics", timeout=10).text
    return next((float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"{name} ")), -1.0)


async def served(client: openai.AsyncOpenAI) -> bool:
    """Whether a request is answered now."""
    try:
        answer = await client.completions.create(model=MODEL, prompt="again", max_tokens=5)
    except openai.InternalServerError:
        return False
    return bool(answer.choices)


async def dies_and_returns(engine: Any, client: openai.AsyncOpenAI, tokens: int) -> None:
    """Kills the engine in the middle of an answer of `tokens`: a clear error, clear refusals meanwhile, and service
    that returns by itself."""
    answer = stream(client, "long", tokens)
    await anext(answer)
    engine.kill()
    with pytest.raises(openai.APIError) as broken:
        async for _ in answer:
            pass
    assert "engine" in str(broken.value).lower()
    away = asyncio.create_task(client.completions.create(model=MODEL, prompt="while it is away", max_tokens=5))
    await asyncio.to_thread(engine.start)
    (outcome,) = await asyncio.gather(away, return_exceptions=True)
    if not isinstance(outcome, openai.types.Completion):  # refused while nothing served, but clearly
        assert isinstance(outcome, openai.APIStatusError)
        assert outcome.status_code in (502, 503), outcome
        assert "engine" in str(outcome)
    async with asyncio.timeout(PATIENCE_S):  # service returns by itself
        while not await served(client):
            await asyncio.sleep(0.2)

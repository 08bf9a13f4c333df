"""What suites of a mesh in front of a real engine share: requests of the `openai` client, and what the mesh says."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import OPS_HEADERS
from tests.engines.engine_server import MODEL, EngineServer

PATIENCE_S = 240.0  # for what takes a second on an idle machine


async def stream(
    client: openai.AsyncOpenAI, prompt: str, tokens: int, *, ttlt_s: int = 0, **more: Any
) -> AsyncGenerator[str, None]:
    """`ttlt_s`: the TTLT that the request states; 0: none."""
    chunks = await client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=tokens, stream=True, extra_body={"ignore_eos": True, **more},
        extra_headers={"x-slo-ttlt-ms": f"{1000 * ttlt_s}"} if ttlt_s else {},
    )  # fmt: skip
    async for chunk in chunks:
        yield chunk.choices[0].text


async def reached(condition: Callable[[], bool]) -> None:
    """Asks metrics off the loop, until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


def worker_metric(mesh: Any, name: str) -> float:
    url = mesh.state["ops_urls"]["worker-1"]
    page = httpx.get(f"{url}/metrics", headers=OPS_HEADERS[url], timeout=10).text
    return next((float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"{name} ")), -1.0)


def key_args(engine: EngineServer, folder: Path) -> tuple[str, ...]:
    """Options of `hmas up`, by which gateway and worker read the engine's key from one file."""
    file = folder / "engine.key"
    file.write_text(f"{engine.api_key}\n")
    return ("--engine-api-key-file", str(file))


async def relays_the_engines_own_refusal(client: openai.AsyncOpenAI, **more: Any) -> None:
    """Of what the mesh does not judge, as the client's error, with the engine's words."""
    with pytest.raises(openai.BadRequestError) as refused:
        await client.completions.create(model=MODEL, prompt="Once", temperature=-5.0, max_tokens=5, **more)
    assert "temperature" in str(refused.value)


async def served(client: openai.AsyncOpenAI) -> bool:
    """Whether a request is answered now."""
    try:
        answer = await client.completions.create(model=MODEL, prompt="again", max_tokens=5)
    except openai.InternalServerError:
        return False
    return bool(answer.choices)


async def dies_and_returns(engine: EngineServer, client: openai.AsyncOpenAI, tokens: int) -> None:
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

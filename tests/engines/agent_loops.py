"""Agents' loops for suites of a mesh in front of real engines: chains of chats by the official client, of which each
repeats the one before it and the answer to it."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import openai

from hmas.mesh.client import bus_of
from hmas.mesh.state import read_state
from hmas.operator.client import connected
from hmas.operator.why import timeline_of
from hmas_loadgen.words import WORDS
from tests.engines.engine_server import MODEL
from tests.engines.through_the_mesh import PATIENCE_S

Create = Callable[..., Awaitable[Any]]  # as `client.chat.completions.create`

TOKEN_TOLERANCE, SHARE_TOLERANCE = 64, 0.05  # how far a promise may be from what the engine reports


@cache
def word_tokens(model: Path) -> list[int]:
    """The tokens of the load generator's words: an answer of them is read again as the same tokens."""
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    return [vocabulary[f"Ġ{word}"] for word in WORDS if f"Ġ{word}" in vocabulary]


def text(rng: random.Random, words: int) -> str:
    return " " + " ".join(rng.choices(WORDS, k=words))


@dataclass(slots=True)
class Call:
    """One call of an agent, as its client and its engine saw it. `promised`, `engine` and `begun_s`, when it went to
    the engine, are told afterwards by the mesh."""

    name: str
    job: int
    sent_s: float
    took_s: float
    prompt_tokens: int
    output_tokens: int
    cached: int
    promised: int = 0
    engine: str = ""
    begun_s: float = 0.0

    @property
    def kept(self) -> bool:
        """Whether the promise was kept within the tolerance."""
        return abs(self.promised - self.cached) <= max(TOKEN_TOLERANCE, SHARE_TOLERANCE * self.cached)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """How agents talk. Numbers of words are (least, most); `pause_s` is the mean of a tool's time."""

    seed: int
    model: str = MODEL
    stages: int = 6
    system: tuple[int, int] = (100, 160)
    user: tuple[int, int] = (30, 60)
    tool: tuple[int, int] = (30, 120)
    answer: tuple[int, int] = (20, 60)
    pause_s: float = 0.5
    body: dict[str, Any] = field(default_factory=dict)


async def one_job(create: Create, loops: Loops, number: int, prefix: str = "") -> list[Call]:
    """One agent from its first call to its last. With a `prefix` each call has a name by which it is found again."""
    rng = random.Random(f"{loops.seed}-{number}")
    messages: list[Any] = [
        {"role": "system", "content": text(rng, rng.randint(*loops.system))},
        {"role": "user", "content": text(rng, rng.randint(*loops.user))},
    ]
    calls: list[Call] = []
    for stage in range(loops.stages):
        name, begun_s = f"{prefix}{number}-{stage}", time.monotonic()
        answer = await create(
            model=loops.model, messages=messages, max_tokens=rng.randint(*loops.answer),
            extra_headers={"x-request-id": name} if prefix else None, extra_body={"ignore_eos": True, **loops.body},
        )  # fmt: skip
        usage = answer.usage
        assert usage is not None
        details = usage.prompt_tokens_details
        cached = (details.cached_tokens or 0) if details is not None else 0
        took_s = time.monotonic() - begun_s
        calls.append(Call(name, number, begun_s, took_s, usage.prompt_tokens, usage.completion_tokens, cached))
        messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
        messages.append({"role": "user", "content": text(rng, rng.randint(*loops.tool))})
        await asyncio.sleep(rng.expovariate(1.0 / loops.pause_s))
    return calls


async def jobs(create: Create, loops: Loops, numbers: Iterable[int], at_once: int, prefix: str = "") -> list[Call]:
    """Runs agents, so many at once; returns their calls in the order in which they were sent."""
    free, calls = asyncio.Semaphore(at_once), list[Call]()

    async def run(number: int) -> None:
        async with free:
            calls.extend(await one_job(create, loops, number, prefix))

    async with asyncio.timeout(PATIENCE_S * 4):
        await asyncio.gather(*(run(number) for number in numbers))
    return sorted(calls, key=lambda call: call.sent_s)


async def learn_promises(mesh: Any, calls: Iterable[Call]) -> None:
    """Asks the mesh what it had promised of each call."""
    bus = bus_of(read_state(mesh.directory))
    async with connected(bus):
        for call in calls:
            told = await timeline_of(bus, call.name)
            assert told is not None, call.name
            call.promised = told["runs"][-1]["timeline"]["promised_tokens"]
            call.engine = told["runs"][-1]["engine"]
            call.begun_s = call.sent_s + (told["runs"][-1]["started_s"] or 0.0)


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S) as client:
        yield client

"""Somebody puts a real vLLM of a mesh to sleep, by each mode of its development endpoints."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import httpx
import openai
import pytest

from hmas.worker.adapters import scrape
from tests.conftest import OPS_HEADERS
from tests.engines.conftest import started
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment
from tests.engines.through_the_mesh import PATIENCE_S, reached, stream, worker_metric
from tests.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
CONTEXT, LONG = 16_384, 12_000  # a stream that goes on long after its engine was put to sleep
SECONDS, RATE, TOKENS = 8.0, 4.0, 40
NO_GRANT_AFTER_S = 1.0
MOST_MORE_S = 1.5  # of TTFT, by which the 95 % quantile may rise while one of the two engines sleeps


class Sleepy(VllmServer):
    """With its own scheduler, and the paths of its development mode."""

    def env(self) -> dict[str, str]:
        return super().env() | {"VLLM_SERVER_DEV_MODE": "1"}

    @property
    def level(self) -> int | None:
        """At which it is asleep, as a worker reads it."""
        return scrape.sleep_level(scrape.read_page(self.ask("/metrics").content))

    def call(self, path: str) -> None:
        httpx.post(f"{self.url}{path}", timeout=PATIENCE_S).raise_for_status()


@pytest.fixture(scope="module")
def engines(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Sleepy]]:
    folder = tmp_path_factory.mktemp("sleepy")
    made = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        made.append(Sleepy(environment, folder / name, "--max-model-len", str(CONTEXT), scheduler=""))
    with started(*made):
        yield made


@pytest.fixture(scope="module")
def mesh(engines: list[Sleepy], tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    options = [option for engine in engines for option in ("--engine", engine.url)]
    with start_mesh(tmp_path_factory.mktemp("mesh"), *options, "--max-num-seqs", "8", "--workers", "1") as running:
        yield running


@pytest.fixture
async def client(mesh: Any) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S) as c:
        yield c


def books(mesh: Any, engine: Sleepy) -> int:
    """How many requests the worker has granted to the engine and not heard the end of, while that is asleep."""
    return int(worker_metric(mesh, f'hmas_worker_engine_running{{engine="{engine.name}"}}'))


def asleep(mesh: Any, engine: Sleepy) -> bool:
    return worker_metric(mesh, f'hmas_worker_engine_asleep{{engine="{engine.name}"}}') == 1.0


def counted(mesh: Any, outcome: str) -> float:
    url = mesh.state["ops_urls"]["gateway"]
    page = httpx.get(f"{url}/metrics", headers=OPS_HEADERS[url], timeout=30).text
    lines = [line for line in page.splitlines() if line.startswith("hmas_gateway_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if f'outcome="{outcome}"' in line)


@dataclass
class Asked:
    sent_s: float
    ttft_s: float = 0.0
    chunks: int = 0  # vLLM may put several tokens into one
    error: str = ""


async def ask(client: openai.AsyncOpenAI, number: int) -> Asked:
    made = Asked(time.monotonic())
    try:
        async for _ in stream(client, f"number {number}", TOKENS):
            made.ttft_s = made.ttft_s or time.monotonic() - made.sent_s
            made.chunks += 1
    except openai.APIError as error:
        made.error = str(error)
    return made


async def send(client: openai.AsyncOpenAI, seconds: float, first: int = 0) -> list["asyncio.Task[Asked]"]:
    """Sends at `RATE` for so many seconds."""
    tasks = []
    for number in range(int(seconds * RATE)):
        tasks.append(asyncio.create_task(ask(client, first + number)))
        await asyncio.sleep(1.0 / RATE)
    return tasks


def p95_s(asked: list[Asked]) -> float:
    return quantiles([each.ttft_s for each in asked if not each.error], n=20)[-1]


async def test_while_one_sleeps_the_other_one_serves(
    mesh: Any, engines: list[Sleepy], client: openai.AsyncOpenAI
) -> None:
    sleeper, _ = engines
    before = await asyncio.gather(*await send(client, SECONDS))
    assert {each.error for each in before} == {""}
    load = asyncio.create_task(send(client, SECONDS, first=1000))
    await asyncio.sleep(1.0)
    slept_s = time.monotonic()
    await asyncio.to_thread(sleeper.call, "/sleep?level=1")
    await asyncio.sleep(NO_GRANT_AFTER_S)
    granted = []
    while not load.done():
        granted.append(await asyncio.to_thread(books, mesh, sleeper))
        await asyncio.sleep(0.1)
    assert await asyncio.to_thread(asleep, mesh, sleeper)
    meanwhile = await asyncio.gather(*await load)
    await asyncio.to_thread(sleeper.call, "/wake_up")
    await reached(lambda: not asleep(mesh, sleeper))
    after = await asyncio.gather(*await send(client, 3.0, first=2000))
    cut = [each for each in meanwhile if each.error]
    print(f"TTFT p95 {p95_s(before):.2f} s before, {p95_s(meanwhile):.2f} s while one slept from the first second on; "
          f"{len(cut)} of {len(meanwhile)} cut; {sum(granted)} in the books in {len(granted)} looks after "
          f"{NO_GRANT_AFTER_S:g} s")  # fmt: skip
    assert sum(granted) == 0
    assert all(each.sent_s < slept_s + 0.5 and each.chunks for each in cut), cut  # they had a token, and were aborted
    assert p95_s(meanwhile) < p95_s(before) + MOST_MORE_S
    assert {each.error for each in after} == {""}


async def test_a_stream_that_is_aborted_after_a_token_ends_with_an_error_and_is_counted(
    mesh: Any, engines: list[Sleepy], client: openai.AsyncOpenAI
) -> None:
    errors = await asyncio.to_thread(counted, mesh, "engine_error")
    answer = stream(client, "long", LONG)
    await anext(answer)
    (used,) = await asyncio.to_thread(lambda: [each for each in engines if each.running])
    await asyncio.to_thread(used.call, "/sleep?level=0&mode=abort")
    with pytest.raises(openai.APIError, match="abort"):
        async for _ in answer:
            pass
    await asyncio.to_thread(used.call, "/wake_up")
    await reached(lambda: counted(mesh, "engine_error") == errors + 1)


async def test_a_stream_that_is_kept_goes_on_with_the_same_text(
    mesh: Any, engines: list[Sleepy], client: openai.AsyncOpenAI
) -> None:
    undisturbed = [text async for text in stream(client, "keep", 3000, temperature=0.0)]
    answer = stream(client, "keep", 3000, temperature=0.0)
    texts = [await anext(answer)]
    (used,) = await asyncio.to_thread(lambda: [each for each in engines if each.running])
    await asyncio.to_thread(used.call, "/sleep?level=1&mode=keep")
    await reached(lambda: asleep(mesh, used))
    assert await asyncio.to_thread(lambda: used.level) == 1
    await asyncio.sleep(2.0)
    assert await asyncio.to_thread(books, mesh, used) == 1
    await asyncio.to_thread(used.call, "/wake_up")
    texts += [text async for text in answer]
    assert "".join(texts) == "".join(undisturbed)


async def test_a_sleep_that_waits_is_seen_from_its_begin(
    mesh: Any, engines: list[Sleepy], client: openai.AsyncOpenAI
) -> None:
    answer = stream(client, "wait", LONG)
    await anext(answer)
    (used,) = await asyncio.to_thread(lambda: [each for each in engines if each.running])
    falling = asyncio.create_task(asyncio.to_thread(used.call, "/sleep?level=1&mode=wait"))
    await reached(lambda: asleep(mesh, used))
    assert not falling.done()
    assert not (await ask(client, 1)).error, "the other one serves it"
    await answer.aclose()
    await falling
    assert await asyncio.to_thread(lambda: used.level) == 1
    await asyncio.to_thread(used.call, "/wake_up")
    await reached(lambda: not asleep(mesh, used))


async def test_where_both_sleep_a_request_waits(mesh: Any, engines: list[Sleepy], client: openai.AsyncOpenAI) -> None:
    for engine in engines:
        await asyncio.to_thread(engine.call, "/sleep?level=2")
    await reached(lambda: all(asleep(mesh, engine) for engine in engines))
    waits = asyncio.create_task(ask(client, 1))
    await asyncio.sleep(12.0)  # longer than it would wait for engines that are down
    assert not waits.done()
    for engine in engines:
        await asyncio.to_thread(engine.call, "/wake_up")
    asked = await waits
    assert asked.chunks
    assert not asked.error


@pytest.mark.parametrize(("level", "kept"), [(0, True), (1, False), (2, False)])
def test_what_the_engine_cached_is_gone_from_level_1_on(engines: list[Sleepy], level: int, kept: bool) -> None:
    engine = engines[0]
    body = {"model": MODEL, "prompt": f"level {level} " + "the " * 600, "max_tokens": 2}
    for _ in range(2):
        assert engine.ask("/v1/completions", body).status_code == 200
    before = engine.metric("vllm:prefix_cache_hits_total")
    assert before > 0
    engine.call(f"/sleep?level={level}")
    assert engine.level == level
    engine.call("/wake_up")
    assert engine.level is None
    assert engine.ask("/v1/completions", body).status_code == 200
    assert (engine.metric("vllm:prefix_cache_hits_total") > before) is kept

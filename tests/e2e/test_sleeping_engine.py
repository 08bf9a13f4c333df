"""Somebody puts an engine of a mesh to sleep: nothing hangs, another one serves, and it serves again once it wakes."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import openai
import pytest

from hmas.worker.adapters import scrape
from tests.chaos.load import Load
from tests.conftest import eventually
from tests.engine_farm import EngineFarm, farm_in, is_healthy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.long]
RATE, TOKENS = 8.0, 40
NO_GRANT_AFTER_S = 1.0  # of a sleep
MOST_MORE_S = 1.5  # of TTFT, by which the 95 % quantile may rise while one of two engines sleeps


@pytest.fixture
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineFarm]:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    with farm_in(tmp_path) as made:
        yield made


async def started(farm: EngineFarm, count: int) -> tuple[list[str], list[str]]:
    """URLs of engines that are healthy, and the options by which a mesh uses them."""
    urls = farm.start(count)
    await eventually(lambda: all(map(is_healthy, urls)))
    return urls, [option for url in urls for option in ("--engine", url)]


async def post(url: str, path: str) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        (await client.post(f"{url}{path}")).raise_for_status()


async def present(url: str) -> int:
    """How many requests are in the engine, by its own count."""
    async with httpx.AsyncClient(timeout=30) as client:
        reading = scrape.read(scrape.read_page((await client.get(f"{url}/metrics")).content), scrape.VLLM)
    assert reading is not None
    return reading.running + reading.waiting


def ttft_p95_s(load: Load, since_s: float, until_s: float) -> float:
    waits = [each.first_s - each.sent_s for each in load.answered if each.first_s and since_s < each.sent_s < until_s]
    return quantiles(waits, n=20)[-1]


@pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "a worker an engine"])
async def test_while_one_engine_sleeps_the_other_one_serves(
    tmp_path: Path, start_mesh: Any, farm: EngineFarm, workers: int
) -> None:
    (sleeper, _), options = await started(farm, 2)
    clock = asyncio.get_running_loop().time
    with start_mesh(tmp_path / "mesh", "--replay", *options, "--workers", str(workers)) as mesh:
        async with Load(mesh.url, rate=RATE, output_tokens=TOKENS) as load:
            began_s = clock()
            await asyncio.sleep(6.0)
            running, slept_s = await present(sleeper), clock()
            await post(sleeper, "/sleep?level=1")
            await asyncio.sleep(NO_GRANT_AFTER_S)
            grants = []
            while clock() < slept_s + 7.0:
                grants.append(await present(sleeper))
                await asyncio.sleep(0.1)
            woken_s = clock()
            await post(sleeper, "/wake_up")
            await eventually_served(sleeper)
    print(f"{load.ends}, {running} ran on the engine when it was put to sleep; TTFT p95 "
          f"{ttft_p95_s(load, began_s, slept_s - 2.0):.2f} s before, {ttft_p95_s(load, slept_s - 0.5, woken_s):.2f} s "
          f"from half a second before the sleep to its end")  # fmt: skip
    assert set(grants) == {0}
    assert load.lost == 0, load.details
    cut = load.ends.total() - load.ends["finished"]
    assert cut <= running + 2, (load.ends, load.details)  # those that had a token, of which some came after the count
    before_s, meanwhile_s = ttft_p95_s(load, began_s, slept_s - 2.0), ttft_p95_s(load, slept_s - 0.5, woken_s)
    assert meanwhile_s < before_s + MOST_MORE_S


async def eventually_served(url: str) -> None:
    async with asyncio.timeout(60):
        while not await present(url):
            await asyncio.sleep(0.05)


async def test_a_request_for_the_only_engine_waits_until_it_wakes_and_says_so(
    tmp_path: Path, start_mesh: Any, farm: EngineFarm
) -> None:
    (url,), options = await started(farm, 1)
    with start_mesh(tmp_path / "mesh", *options) as mesh:
        await post(url, "/sleep?level=2")
        await eventually(told_asleep(mesh))
        async with openai.AsyncOpenAI(
            base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=120
        ) as client:
            asked = asyncio.create_task(
                client.completions.create(
                    model="emulated", prompt="Once", max_tokens=4, extra_headers={"x-request-id": "waits"}
                )
            )
            await asyncio.sleep(12.0)  # longer than a worker without any engine would wait
            assert not asked.done()
            waiting = await why(mesh, "waits")
            assert waiting["waits_for"].endswith("put to sleep what could take it at its worker")
            assert waiting["runs"] == []
            await post(url, "/wake_up")
            await asked
        (run,) = (await why(mesh, "waits"))["runs"]
        assert run["timeline"]["asleep_s"] > 10.0
        log = mesh.output.read_text()
    assert log.count("engine_asleep") == 1
    assert "engine_down" not in log


async def test_a_stream_that_the_engine_keeps_goes_on_when_it_wakes(
    tmp_path: Path, start_mesh: Any, farm: EngineFarm
) -> None:
    (url,), options = await started(farm, 1)
    with start_mesh(tmp_path / "mesh", *options) as mesh:
        async with openai.AsyncOpenAI(
            base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=120
        ) as client:
            chunks = await client.completions.create(
                model="emulated", prompt="Once", max_tokens=300, stream=True, extra_body={"ignore_eos": True}
            )
            texts = [(await anext(chunks)).choices[0].text]
            await post(url, "/sleep?level=1&mode=keep")
            await asyncio.sleep(3.0)
            await post(url, "/wake_up")
            ended = [chunk.choices[0] async for chunk in chunks]
    texts += [each.text for each in ended]
    assert sum(map(bool, texts)) == 300
    assert ended[-1].finish_reason == "length"


def told_asleep(mesh: Any) -> Callable[[], bool]:
    return lambda: "engine_asleep" in mesh.output.read_text()


async def why(mesh: Any, name: str) -> dict[str, Any]:
    told = await asyncio.to_thread(mesh.hmas, "why", name, "--json", timeout=120)
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found

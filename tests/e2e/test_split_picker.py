"""Requests that two engines serve under a real Envoy: the gateway has the prompt computed while Envoy holds the
request, and Envoy carries the answer of the other engine."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.hop.envoy import configuration, envoy, installed
from hmas.mesh.ports import free_port
from tests.chaos.hurt import metric
from tests.conftest import eventually
from tests.e2e.test_split_requests import CHAT, two_engines
from tests.engine_farm import EngineFarm, is_healthy

pytestmark = [pytest.mark.e2e, pytest.mark.long]
PATH = "/v1/chat/completions"
ROUNDS = 8


@dataclass
class SplitPicked:
    """A mesh of an engine for prompts and one for answers, and two Envoys before it, of which the second one sends
    bodies in parts."""

    urls: tuple[str, str]
    mesh: Any
    farm: EngineFarm
    first: str
    second: str

    def tokens(self) -> list[float]:
        return [metric(url, "vllm:generation_tokens_total") for url in (self.first, self.second)]


@pytest.fixture(scope="module")
def picked(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[SplitPicked]:
    try:
        installed()
    except RuntimeError as reason:
        pytest.skip(str(reason))
    folder: Path = tmp_path_factory.mktemp("split-picker")
    picker_port, ports = free_port(), (free_port(), free_port())
    env = {"HMAS_PICKER_PORT": str(picker_port), "HMAS_SPLIT": "always"}
    with two_engines(folder) as (farm, first, second):
        args = ("--engine", f"file+{farm.file}", "--model", "emulated", "--workers", "1")
        with start_mesh(folder / "mesh", *args, env=env) as mesh:
            gateway_port = int(mesh.url.rsplit(":", 1)[1])
            configured = partial(configuration, picker_port=picker_port, gateway_port=gateway_port)
            plain = configured(port=ports[0], admin_port=free_port())
            duplex = configured(port=ports[1], admin_port=free_port(), duplex=True)
            (folder / "duplex").mkdir()
            with envoy(folder, plain), envoy(folder / "duplex", duplex):
                urls = (f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}")
                yield SplitPicked(urls, mesh, farm, first, second)


def said(answer: httpx.Response) -> tuple[str, str]:
    """Text and reason of the end of an answer, streamed or not."""
    assert answer.status_code == 200, answer.text
    assert "remote_host" not in answer.text  # where KV lies
    lines = answer.text.splitlines()
    if lines[0].startswith("data: "):
        choices = [json.loads(line[6:])["choices"] for line in lines if line.startswith("data: {")]
        deltas = [each[0] for each in choices if each]
        reason = next(each["finish_reason"] for each in deltas if each["finish_reason"])
        return "".join(each["delta"].get("content") or "" for each in deltas), reason
    choice = answer.json()["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


@pytest.mark.parametrize("way", [0, 1], ids=["buffered", "duplex"])
async def test_both_engines_serve_what_envoy_carries_and_the_tokens_are_those_of_one(
    picked: SplitPicked, way: int
) -> None:
    await eventually(lambda: is_healthy(picked.first) and is_healthy(picked.second), 60)
    bodies = [
        {
            **CHAT,
            "messages": [{"role": "user", "content": f"tell {n} " * 50}],
            "stream": bool(n % 2),
            "max_tokens": 9 + n,
        }
        for n in range(ROUNDS)
    ]
    async with httpx.AsyncClient(timeout=60.0) as client:
        await client.post(f"{picked.mesh.url}{PATH}", json=CHAT)  # both engines are found
        alone = [said(await client.post(f"{picked.second}{PATH}", json=body)) for body in bodies]
        before = picked.tokens()
        answers = await asyncio.gather(*(client.post(f"{picked.urls[way]}{PATH}", json=body) for body in bodies))
        assert [said(each) for each in answers] == alone
        after = picked.tokens()
        prompts, generated = (later - earlier for earlier, later in zip(before, after, strict=True))
        assert prompts == ROUNDS
        assert generated >= ROUNDS
    for url in (picked.first, picked.second):
        await eventually(partial(lambda each: metric(each, "vllm:kv_cache_usage_perc") == 0.0, url), 10)
    await eventually(lambda: metric(picked.mesh.gateway_ops_url, "hmas_gateway_live_requests") == 0)


async def test_why_names_both_engines_of_what_envoy_carried(picked: SplitPicked) -> None:
    async with httpx.AsyncClient(timeout=60.0) as client:
        answer = await client.post(f"{picked.urls[0]}{PATH}", json=CHAT, headers={"x-request-id": "carried"})
    assert answer.status_code == 200
    await eventually(lambda: metric(picked.mesh.gateway_ops_url, "hmas_gateway_live_requests") == 0)
    found = json.loads(picked.mesh.hmas("why", "carried", "--json").stdout)
    [run] = found["runs"]
    assert [f"http://{run[name]}" for name in ("prefill_engine", "engine")] == [picked.first, picked.second]
    assert run["started_s"] < run["went_on_s"]


async def test_a_hand_over_that_fails_under_envoy_ends_the_request(picked: SplitPicked) -> None:
    """The gateway serves it elsewhere where it carries the answer itself; what Envoy carries, it cannot take back."""
    computed = picked.tokens()[0]
    httpx.post(f"{picked.first}/hmas/kv/fault", json={"kind": "fail"})
    try:
        async with httpx.AsyncClient(timeout=60.0) as client:
            answers = [await client.post(f"{url}{PATH}", json=CHAT) for url in (picked.urls[0], picked.mesh.url)]
    finally:
        httpx.post(f"{picked.first}/hmas/kv/fault", json={"kind": ""})
    assert picked.tokens()[0] == computed + 2
    assert [answer.status_code for answer in answers] == [502, 200]
    assert answers[0].json()["error"]["reason"] == "engine_error"


async def test_a_request_that_envoy_holds_runs_whole_if_the_prompts_engine_is_frozen(picked: SplitPicked) -> None:
    """It is the last test: an engine that froze is spared as long as another one has room."""
    os.kill(picked.farm.pid(picked.first), signal.SIGSTOP)
    started_s = time.monotonic()
    try:
        async with httpx.AsyncClient(timeout=60.0) as client:
            answer = await client.post(f"{picked.urls[0]}{PATH}", json=CHAT)
    finally:
        os.kill(picked.farm.pid(picked.first), signal.SIGCONT)
    print(f"a prompt at a frozen engine was served within {time.monotonic() - started_s:.1f} s")
    said(answer)

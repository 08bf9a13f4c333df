"""Agents' loops by the official client, which sets no header, on two models of two real vLLM engines each: through the
mesh, and by a balancer that sends each call to the engine with the fewest calls. The figures are printed."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import openai
import pytest

from tests.engines.agent_loops import Call, Loops, client_of, jobs, word_tokens
from tests.engines.conftest import started
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment
from tests.engines.figures import note
from tests.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.long, pytest.mark.timeout(2400)]
MODELS, ENGINES = (MODEL, "other"), 2
SIZE = (256, 4)  # hidden size and layers: computing a prompt takes most of a call's time
BLOCK, BLOCKS, CONTEXT = 32, 430, 8_192
JOBS, AT_ONCE = 8, 5  # of each model
LOOPS = Loops(seed=3, stages=7, system=(700, 900), user=(60, 90), tool=(350, 550), answer=(8, 16), pause_s=0.3)
RUNS = 2  # by each balancer, in turn
GOAL = 0.7


class _Engine(VllmServer):
    def env(self) -> dict[str, str]:
        return super().env() | {"VLLM_SERVER_DEV_MODE": "1"}


@pytest.fixture(scope="module")
def engines(
    environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[VllmServer]]]:
    """By model."""
    model = environment.sized_model(*SIZE)
    made: dict[str, list[VllmServer]] = {}
    for name in MODELS:
        flags = (
            "--served-model-name", name, "--enable-prefix-caching", "--enable-prompt-tokens-details",
            "--block-size", str(BLOCK), "--num-gpu-blocks-override", str(BLOCKS), "--max-model-len", str(CONTEXT),
            "--max-num-seqs", "16",
        )  # fmt: skip
        folders = [tmp_path_factory.mktemp(f"{name}-{number}") for number in range(ENGINES)]
        made[name] = [_Engine(environment, folder, *flags, model=model) for folder in folders]
    with started(*(server for servers in made.values() for server in servers)):
        yield made


class LeastOutstanding:
    """Sends each call to the engine that has the fewest of them."""

    def __init__(self, clients: list[openai.AsyncOpenAI]) -> None:
        self._clients, self._open = clients, [0] * len(clients)

    async def create(self, **named: Any) -> Any:
        n = min(range(len(self._open)), key=self._open.__getitem__)
        self._open[n] += 1
        try:
            return await self._clients[n].chat.completions.create(**named)
        finally:
            self._open[n] -= 1


def times(calls: list[Call]) -> list[float]:
    """The seconds that each job's calls took in all, without the time of its tools."""
    by_job: dict[int, float] = {}
    for call in calls:
        by_job[call.job] = by_job.get(call.job, 0.0) + call.took_s
    return list(by_job.values())


def told(what: str, calls: list[Call]) -> tuple[float, float]:
    """Prints and returns the median time of a job and the share of prompt tokens that were cached."""
    took, cached = times(calls), sum(c.cached for c in calls) / sum(c.prompt_tokens for c in calls)
    print(f"\n{what}: {len(took)} jobs, {len(calls)} calls; job time p50 {median(took):.2f} s, most {max(took):.2f} s; "
          f"{cached:.1%} of prompt tokens cached")  # fmt: skip
    return median(took), cached


async def both(creates: dict[str, Callable[..., Any]], loops: dict[str, Loops]) -> list[Call]:
    """Runs the agents of both models at the same time."""
    found = await asyncio.gather(
        *(jobs(create, loops[name], range(n * JOBS, (n + 1) * JOBS), AT_ONCE) for n, (name, create) in
          enumerate(creates.items()))
    )  # fmt: skip
    return [call for calls in found for call in calls]


async def test_jobs_find_more_in_the_caches_than_by_least_outstanding(
    environment: EngineEnvironment, engines: dict[str, list[VllmServer]], tmp_path: Path, start_mesh: Callable[..., Any]
) -> None:
    words = word_tokens(environment.model)
    loops = {name: replace(LOOPS, model=name, body={"allowed_token_ids": words}) for name in MODELS}

    async def reset() -> None:
        for each in (e for servers in engines.values() for e in servers):
            assert (await asyncio.to_thread(each.ask, "/reset_prefix_cache", {})).status_code == 200

    found: dict[str, list[tuple[float, float]]] = {"mesh": [], "least": []}
    args = [arg for servers in engines.values() for each in servers for arg in ("--engine", each.url)]
    with start_mesh(tmp_path, *args) as mesh:
        async with client_of(mesh.url) as client:
            for run in range(RUNS):
                await reset()
                async with DirectClients(engines) as direct:
                    calls = await both({name: LeastOutstanding(c).create for name, c in direct.items()}, loops)
                found["least"].append(told(f"least outstanding, run {run}", calls))
                await reset()
                calls = await both(dict.fromkeys(MODELS, client.chat.completions.create), loops)
                found["mesh"].append(told(f"mesh, run {run}", calls))
    mesh_s, least_s = (min(took for took, _ in found[each]) for each in ("mesh", "least"))
    print(f"\njob time p50: {mesh_s / least_s:.2f} of least outstanding (goal {GOAL}; told, because it is a time)")
    mesh_share, least_share = (sum(share for _, share in found[each]) for each in ("mesh", "least"))
    note("job_time", mesh_s / least_s)
    note("computed", (RUNS - mesh_share) / (RUNS - least_share))
    assert mesh_share > least_share


class DirectClients:
    """Clients of the engines themselves, by model."""

    def __init__(self, engines: dict[str, list[VllmServer]]) -> None:
        self._clients = {
            name: [openai.AsyncOpenAI(base_url=f"{e.url}/v1", api_key="unused", max_retries=0) for e in servers]
            for name, servers in engines.items()
        }

    async def __aenter__(self) -> dict[str, list[openai.AsyncOpenAI]]:
        return self._clients

    async def __aexit__(self, *_: object) -> None:
        for client in (c for clients in self._clients.values() for c in clients):
            await client.close()

"""Engine, worker and gateway are killed in the middle of agents' jobs: every job ends, and keeps its id."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from hmas.mesh.client import bus_of
from hmas.mesh.state import read_state
from hmas.operator.client import connected
from hmas.operator.why import timeline_of
from tests.chaos.second_gateway import SECOND, TwoGateways, with_second_gateway

pytestmark = [pytest.mark.chaos, pytest.mark.long]
JOBS, STAGES, TOKENS = 12, 6, 40
KILLED_AFTER = JOBS * 2  # calls
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def two(mesh: Any) -> Iterator[TwoGateways]:
    with with_second_gateway(mesh) as two:
        yield two


class Agents:
    """Agents whose calls go to the gateways at random, as behind a balancer. An agent whose call fails makes it again,
    as an agent does; `again` counts these."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        self._clients = [
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=45.0) for url in urls
        ]
        self.done = self.again = 0
        self.names: dict[int, list[str]] = {}

    async def run(self, prefix: str, number: int) -> None:
        rng = random.Random(f"{prefix}{number}")
        messages: list[Any] = [
            {"role": "system", "content": f"You are agent {number} of {prefix}. " * 20},
            {"role": "user", "content": f"Do task {number} of {prefix}."},
        ]
        for stage in range(STAGES):
            name = f"{prefix}-{number}-{stage}"
            answer = await self._answer(rng, name, messages)
            self.names.setdefault(number, []).append(name)
            self.done += 1
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": f"The tool says {rng.random()}. " * 10})

    async def _answer(self, rng: random.Random, name: str, messages: list[Any]) -> str:
        while True:
            try:
                answer = await rng.choice(self._clients).chat.completions.create(
                    model="emulated", messages=messages, max_tokens=TOKENS, extra_headers={"x-request-id": name},
                    extra_body={"ignore_eos": True},
                )  # fmt: skip
            except openai.APIError:
                self.again += 1
                await asyncio.sleep(0.2)
            else:
                return answer.choices[0].message.content or ""


@pytest.mark.parametrize("killed", ["engine-1", "worker-1", "gateway", SECOND])
async def test_jobs_end_and_keep_their_ids(mesh: Any, two: TwoGateways, killed: str) -> None:
    agents = Agents(two.urls)
    async with asyncio.timeout(PATIENCE_S):
        running = [asyncio.create_task(agents.run(f"no-{killed}", number)) for number in range(JOBS)]
        while agents.done < KILLED_AFTER:
            await asyncio.sleep(0.05)
        two.kill(killed)
        await asyncio.gather(*running)
    assert agents.done == JOBS * STAGES
    ids: dict[int, set[str]] = {number: set() for number in agents.names}
    bus, known = bus_of(read_state(mesh.directory)), 0
    async with connected(bus):
        for number, names in agents.names.items():
            for name in names:
                told = await timeline_of(bus, name)
                if told is not None:  # the killed gateway's journal is gone
                    known += 1
                    ids[number].add(told["job"]["job"])
    print(f"\n{killed}: {agents.again} calls made again, {known} of {agents.done} calls still told of")
    assert [len(each) for each in ids.values()] == [1] * JOBS
    assert len(set.union(*ids.values())) == JOBS
    assert known >= agents.done // 3
    await two.whole()

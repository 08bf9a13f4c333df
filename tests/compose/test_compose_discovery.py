"""Engines found by name, in containers: from two to four to one under load, and no request is lost."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.chaos.load import Load
from tests.compose.conftest import running, wait_healthy
from tests.compose.docker import Stack, docker

pytestmark = [pytest.mark.compose, pytest.mark.long, pytest.mark.timeout(1800)]
FOUND_WITHIN_S = 90.0


@pytest.fixture(scope="module")
def found_stack(image: str) -> Iterator[Stack]:
    with running("docker-compose.discovery.yml") as stack:
        yield stack


def owned(stack: Stack) -> int:
    """How many engines the two workers have together."""
    code = (
        "import urllib.request as u; page = u.urlopen('http://127.0.0.1:9100/metrics').read().decode();"
        "print([x.split()[1] for x in page.splitlines() if x.startswith('hmas_worker_engines_owned ')][0])"
    )
    return sum(
        int(float(docker("exec", stack.container(worker), "python", "-c", code))) for worker in ("worker-1", "worker-2")
    )


async def wait_for(stack: Stack, engines: int) -> None:
    deadline_s = time.monotonic() + FOUND_WITHIN_S
    while (now := await asyncio.to_thread(owned, stack)) != engines:
        assert time.monotonic() < deadline_s, f"the workers have {now} engines, not {engines}"
        await asyncio.sleep(0.5)


async def scale(stack: Stack, first: int, second: int) -> None:
    args = ("up", "-d", "--no-recreate", "--scale", f"engine-1={first}", "--scale", f"engine-2={second}")
    await asyncio.to_thread(stack.compose, *args)


async def test_engines_are_scaled_from_two_to_four_to_one_under_load(found_stack: Stack) -> None:
    await wait_for(found_stack, 2)
    async with Load(found_stack.url, rate=6.0) as load:
        await asyncio.sleep(2.0)
        await scale(found_stack, 3, 1)
        await wait_for(found_stack, 4)
        await asyncio.sleep(3.0)
        await scale(found_stack, 1, 0)
        await wait_for(found_stack, 1)
        await asyncio.sleep(3.0)
    assert set(load.ends) == {"finished"}, (load.ends, load.details)


async def switch(stack: Stack, mode: str) -> None:
    """As docs/operations.md says: the workers one after another, then the gateway."""
    stack.env["HMAS_MODE"] = mode
    for service in ("worker-1", "worker-2", "gateway"):
        await asyncio.to_thread(stack.compose, "up", "-d", "--no-deps", service)
        await asyncio.to_thread(wait_healthy, stack, [service], FOUND_WITHIN_S)


async def test_observing_is_rolled_out_to_scheduling_and_back_under_load(found_stack: Stack) -> None:
    """Only while the one gateway is replaced clients cannot connect; the engines are never restarted."""
    engine = found_stack.container("engine-1")
    started = found_stack.inspect("engine-1")["State"]["StartedAt"]
    for mode in ("observe", "schedule", "observe"):
        async with Load(found_stack.url, rate=4.0) as load:
            await switch(found_stack, mode)
            await wait_for(found_stack, 1)
        assert load.lost == load.cut == 0, (load.ends, load.details)
        assert set(load.ends) <= {"finished", "connection", "error:503"}
        async with Load(found_stack.url, rate=4.0) as load:
            await asyncio.sleep(3.0)
        assert set(load.ends) == {"finished"}, (load.ends, load.details)
        assert {each.mode for each in load.answered} == {"observe" if mode == "observe" else ""}
    assert found_stack.container("engine-1") == engine
    assert found_stack.inspect("engine-1")["State"]["StartedAt"] == started

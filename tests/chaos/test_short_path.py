"""Workers decide and gateways carry: whoever decides may die or freeze, and no client notices. Times are printed; the
bounds on them are time-outs at twice the goal."""

import asyncio
import itertools
import os
import time
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from tests.chaos.hurt import EngineLog, frozen, is_ready, kept_dead, metric
from tests.chaos.load import Load
from tests.conftest import eventually

pytestmark = pytest.mark.chaos
SOAK = "HMAS_SOAK" in os.environ
BEFORE_S, AFTER_S = (3.0, 10.0) if SOAK else (1.0, 3.0)  # of load before a fault and after it
DEAD_S, FROZEN_S = (30.0, 10.0) if SOAK else (8.0, 4.0)
GOAL_S = 3.0  # until serving goes on, and until scheduling does
WORKERS = ("worker-1", "worker-2")
WHO_DECIDES = (*WORKERS, "nats", "qos", "meta", "statera", "perception", "prediction")
REPEATED = ("gateway", "engine-1", "nats")


async def all_connected(mesh: Any) -> None:
    await eventually(lambda: metric(mesh.gateway_ops_url, "hmas_gateway_workers_connected") == len(WORKERS), 30)


@pytest.fixture
async def engines(mesh: Any) -> EngineLog:
    """The engines' books, from an instant at which the mesh is whole and idle."""
    await all_connected(mesh)
    urls = mesh.state["engine_urls"]
    await eventually(lambda: sum(metric(url, "vllm:num_requests_running") for url in urls) == 0, 30)
    return EngineLog(urls)


def tell(what: str, load: Load, engines: EngineLog, more: str = "") -> None:
    counts = ", ".join(f"{n} {end}" for end, n in load.ends.most_common())
    waits = [each.headed_s - each.sent_s for each in load.answered]
    print(f"{what}: {counts}; longest wait for an answer's begin {max(waits):.2f} s; "
          f"{longest_gap_s(each.ended_s for each in load.answered):.2f} s without an end; "
          f"{engines.aborted()} aborted at engines{more}")  # fmt: skip


def longest_gap_s(instants_s: Iterable[float]) -> float:
    ordered = sorted(instants_s)
    return max((after - before for before, after in itertools.pairwise(ordered)), default=0.0)


def check_each_was_served_once(load: Load, engines: EngineLog) -> None:
    """None broken, none lost, and none that ran twice to its end."""
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
    assert engines.served() == load.served


async def test_all_workers_are_killed_three_times_and_no_client_notices(mesh: Any, engines: EngineLog) -> None:
    async with Load(mesh.url, output_tokens=100) as load:
        for _ in range(3):
            await asyncio.sleep(BEFORE_S)
            for name in WORKERS:
                mesh.kill(name)
            await eventually(lambda: metric(mesh.gateway_ops_url, "hmas_gateway_workers_connected") < len(WORKERS), 10)
            await all_connected(mesh)
        await asyncio.sleep(AFTER_S)
    tell("all workers killed three times", load, engines)
    check_each_was_served_once(load, engines)
    assert engines.aborted() == 0  # nothing was begun in two places either


async def test_without_whoever_decides_serving_goes_on_and_scheduling_comes_back(mesh: Any, engines: EngineLog) -> None:
    async with Load(mesh.url) as load:
        await asyncio.sleep(BEFORE_S)
        with kept_dead(mesh, WHO_DECIDES):
            killed_s = time.monotonic()
            await asyncio.sleep(DEAD_S)
        urls = [mesh.state["ops_urls"][name] for name in WORKERS]
        await eventually(lambda: all(map(is_ready, urls)), 40)
        back_s = time.monotonic()
        await asyncio.sleep(2 * GOAL_S)
    again_s = min(each.headed_s for each in load.answered if each.sent_s > killed_s) - killed_s
    bypassed = [each for each in load.answered if each.mode == "bypass"]
    scheduled = [each for each in load.answered if each.sent_s > back_s and not each.mode]
    scheduled_s = min(each.headed_s for each in scheduled) - back_s
    tell(f"nobody decides for {DEAD_S:.0f} s", load, engines,
         f"; first answer after {again_s:.2f} s, {len(bypassed)} by bypass, scheduled {scheduled_s:.2f} s after the "
         "workers were back")  # fmt: skip
    check_each_was_served_once(load, engines)
    assert len(bypassed) > DEAD_S  # of 8 requests/s
    assert again_s <= 2 * GOAL_S
    assert scheduled_s <= 2 * GOAL_S
    await eventually(lambda: metric(mesh.gateway_ops_url, "hmas_gateway_bypass_engines") == 0, 20)


@pytest.mark.long
async def test_the_engine_of_a_dead_worker_stays_in_use(mesh: Any, engines: EngineLog) -> None:
    """The load is more than one engine has slots for: what waits at the living worker is placed on the other engine."""
    own = EngineLog(mesh.state["engine_urls"][:1])  # that of worker-1
    async with Load(mesh.url, output_tokens=400, streams=1) as load:
        await asyncio.sleep(BEFORE_S)
        with kept_dead(mesh, ["worker-1"]):
            await asyncio.sleep(2 * GOAL_S)
            before = own.served().total()
            await asyncio.sleep(DEAD_S)
    served, bypassed = own.served().total() - before, sum(each.mode == "bypass" for each in load.answered)
    tell(f"one worker of two dead for {DEAD_S + 2 * GOAL_S:.0f} s", load, engines,
         f"; {bypassed} by bypass; its engine served {served} later than {2 * GOAL_S:.0f} s after")  # fmt: skip
    check_each_was_served_once(load, engines)
    assert min(served, bypassed) > DEAD_S / 2


@pytest.mark.parametrize("name", ["worker-1", *(pytest.param(n, marks=pytest.mark.long) for n in REPEATED)])
async def test_what_froze_and_goes_on_breaks_nothing(mesh: Any, engines: EngineLog, name: str) -> None:
    async with Load(mesh.url, output_tokens=100) as load:
        await asyncio.sleep(BEFORE_S)
        with frozen(mesh, name):
            await asyncio.sleep(FROZEN_S)
        await asyncio.sleep(AFTER_S)
    tell(f"{name} frozen for {FROZEN_S:.0f} s", load, engines)
    check_each_was_served_once(load, engines)


def test_a_request_that_ran_twice_is_found(mesh: Any, engines: EngineLog) -> None:
    ask = {"model": "emulated", "prompt": "Twice", "max_tokens": 7}
    for _ in range(2):
        httpx.post(f"{mesh.state['engine_urls'][0]}/v1/completions", json=ask, timeout=30).raise_for_status()
    load = Load(mesh.url)
    load.ends["finished"] = 1
    load.served.update(set(engines.served()))
    with pytest.raises(AssertionError):
        check_each_was_served_once(load, engines)

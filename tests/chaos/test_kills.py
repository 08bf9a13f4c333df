"""Kill -9, one at a time, under load: what DESIGN §6 promises for each row."""

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from tests.chaos.hurt import is_ready, metric
from tests.chaos.load import Load
from tests.conftest import eventually

pytestmark = pytest.mark.chaos
SOAK = "HMAS_SOAK" in os.environ
BEFORE_S, AFTER_S = (3.0, 10.0) if SOAK else (1.0, 3.0)  # of load before a kill and after it
LONG_OUTPUT_TOKENS = 150  # streams and plain answers of every engine are under way


def engines_running(mesh: Any) -> float:
    return sum(metric(url, "vllm:num_requests_running") for url in mesh.state["engine_urls"])


async def kill_under_load(mesh: Any, name: str, output_tokens: int = 40) -> Load:
    async with Load(mesh.url, output_tokens=output_tokens) as load:
        await asyncio.sleep(BEFORE_S)
        mesh.kill(name)
        killed_s = time.monotonic()
        await asyncio.sleep(AFTER_S)
    assert load.lost == 0, (load.ends, load.details)
    assert load.last_finished_s > killed_s
    return load


async def is_back(mesh: Any, name: str) -> None:
    def alive() -> bool:
        try:
            return bool(mesh.pid(name))
        except LookupError:
            return False

    await eventually(alive)


@pytest.mark.parametrize("name", ["perception", "prediction"])
async def test_cognition_dead_serving_unaffected(mesh: Any, name: str) -> None:
    before = metric(mesh.gateway_ops_url, "hmas_cognition_fallback_total")
    load = await kill_under_load(mesh, name)
    assert set(load.ends) == {"finished"}
    assert metric(mesh.gateway_ops_url, "hmas_cognition_fallback_total") > before
    await is_back(mesh, name)


@pytest.mark.parametrize("name", ["perception", "prediction"])
async def test_cognition_stalled_no_request_waits_for_it_and_each_is_counted(mesh: Any, name: str) -> None:
    before = metric(mesh.gateway_ops_url, "hmas_cognition_fallback_total")
    pid = mesh.pid(name)
    mesh.kill(name, signal.SIGSTOP)
    try:
        async with Load(mesh.url) as load:
            await asyncio.sleep(AFTER_S)
        assert set(load.ends) == {"finished"}
        unanswered = load.ends.total()
        await eventually(lambda: metric(mesh.gateway_ops_url, "hmas_cognition_fallback_total") - before == unanswered)
        assert metric(mesh.gateway_ops_url, "hmas_cognition_fallback_total", reason="late") > 0
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("name", ["qos", "meta", "statera"])
async def test_control_agents_dead_serving_unaffected(mesh: Any, name: str) -> None:
    load = await kill_under_load(mesh, name)
    assert set(load.ends) == {"finished"}
    await is_back(mesh, name)


@pytest.mark.parametrize("name", ["meta", "statera"])
async def test_controls_run_out_into_the_safe_default_and_come_back(mesh: Any, name: str) -> None:
    """A stalled controller is as good as a dead one: workers fall back, say so, and recover."""

    def expired() -> float:
        urls = [url for process, url in mesh.state["ops_urls"].items() if process.startswith("worker")]
        return sum(metric(url, "hmas_worker_control_expired") for url in urls)

    await eventually(lambda: expired() == 0, 20)
    pid = mesh.pid(name)
    mesh.kill(name, signal.SIGSTOP)
    try:
        async with Load(mesh.url, rate=4) as load:
            await eventually(lambda: expired() == 2, 20)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert set(load.ends) == {"finished"}
    await eventually(lambda: expired() == 0, 20)


async def test_nats_dead_serving_goes_on_and_agents_reconnect(mesh: Any) -> None:
    load = await kill_under_load(mesh, "nats")
    assert set(load.ends) == {"finished"}
    await is_back(mesh, "nats")
    urls = mesh.state["ops_urls"].values()
    await eventually(lambda: all(metric(u, "hmas_nats_connected") == 1 for u in urls), 30)


async def test_a_dead_worker_costs_no_request_anything(mesh: Any) -> None:
    load = await kill_under_load(mesh, "worker-1", LONG_OUTPUT_TOKENS)
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
    await is_back(mesh, "worker-1")


async def test_a_dead_engine_costs_those_that_it_had_begun_to_answer(mesh: Any) -> None:
    """The others run elsewhere."""
    url = mesh.state["engine_urls"][0]
    async with Load(mesh.url, output_tokens=LONG_OUTPUT_TOKENS) as load:
        await asyncio.sleep(BEFORE_S)
        held = metric(url, "vllm:num_requests_running") + metric(url, "vllm:num_requests_waiting")
        mesh.kill("engine-1")
        await asyncio.sleep(AFTER_S)
    errors = load.ends.total() - load.ends["finished"]
    print(f"engine-1 held {held:.0f}, of which {errors} ended with engine_error")
    assert set(load.ends) == {"finished", "error:engine_error"}, (load.ends, load.details)
    assert errors <= held + 1  # one may come between the count and the kill
    await is_back(mesh, "engine-1")
    async with Load(mesh.url) as after:
        await asyncio.sleep(3)
    assert set(after.ends) == {"finished"}


async def test_a_dead_gateway_closes_its_clients_and_frees_the_engines(mesh: Any) -> None:
    async with Load(mesh.url, output_tokens=200) as load:
        await asyncio.sleep(BEFORE_S)
        mesh.kill("gateway")
        await asyncio.sleep(1)
    assert load.lost == 0, (load.ends, load.details)
    assert load.ends["connection"] > 0
    await is_back(mesh, "gateway")
    await eventually(lambda: engines_running(mesh) == 0, 20)

    await eventually(lambda: is_ready(mesh.url), 20)
    async with Load(mesh.url) as after:
        await asyncio.sleep(3)
    assert set(after.ends) == {"finished"}


async def test_a_gateway_that_ends_by_sigterm_drains_without_loss(mesh: Any) -> None:
    """What comes while no gateway listens is refused; `test_rolling.py` has a second one."""
    async with Load(mesh.url, rate=6) as load:
        await asyncio.sleep(BEFORE_S)
        mesh.kill("gateway", signal.SIGTERM)
        await asyncio.sleep(AFTER_S)
    assert load.lost == 0, (load.ends, load.details)
    assert set(load.ends) <= {"finished", "connection", "error:503"}, load.ends
    await is_back(mesh, "gateway")
    await asyncio.sleep(2)

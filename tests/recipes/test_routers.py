"""Beside the routers of others: the same engines, observed first, shared for a while, taken over and given back.

vLLM's router comes from PyPI. That of the vLLM production stack is no package there: HMAS_STACK_ROUTER names its
program `vllm-router` where somebody has installed it."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hmas.mesh.ports import free_port
from tests.chaos.counts import CountLog
from tests.chaos.hurt import metric
from tests.chaos.load import Load
from tests.conftest import eventually
from tests.engine_farm import EngineFarm, farm_in, is_healthy
from tests.recipes.test_recipes import answers, clean_env, folder_of

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(1800)]
VLLM_ROUTER = "vllm-router==0.1.17"
N_RUN = 6
START_S = 120.0


def command(name: str, engines: list[str], port: int) -> list[str]:
    where = ["--host", "127.0.0.1", "--port", str(port)]
    if name == "vllm-router":
        python = str(folder_of(VLLM_ROUTER) / "python")
        options = ["--worker-urls", *engines, "--policy", "round_robin", "--prometheus-port", str(free_port())]
        return [python, "-m", "vllm_router.launch_router", *options, *where]
    program = os.environ.get("HMAS_STACK_ROUTER")
    if program is None:
        pytest.skip("HMAS_STACK_ROUTER does not name the router of the vLLM production stack")
    models = ",".join("emulated" for _ in engines)
    options = ["--service-discovery", "static", "--static-backends", ",".join(engines), "--static-models", models]
    return [program, *options, "--routing-logic", "roundrobin", "--engine-stats-interval", "1", *where]


@contextmanager
def router(name: str, engines: list[str], folder: Path) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "router.log").open("wb") as log:
        process = subprocess.Popen(command(name, engines, port), env=clean_env(), stdout=log, stderr=log, cwd=folder)
    try:
        deadline_s = time.monotonic() + START_S
        while not answers(f"{url}/v1/models"):
            assert process.poll() is None, (folder / "router.log").read_text()[-3000:]
            assert time.monotonic() < deadline_s, (folder / "router.log").read_text()[-3000:]
            time.sleep(0.3)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[EngineFarm]:
    with farm_in(tmp_path, N_RUN) as farm:
        yield farm


@pytest.mark.parametrize("name", ["vllm-router", "production-stack"])
async def test_clients_move_from_a_router_to_the_mesh_and_back(
    name: str, farm: EngineFarm, tmp_path: Path, start_mesh: Any
) -> None:
    engines = farm.start(2)
    farm.name(*engines)
    await eventually(lambda: all(is_healthy(url) for url in engines), 60)
    args = ("--replay", "--engine", f"file+{farm.file}", "--model", "emulated")
    loads = []
    with router(name, engines, tmp_path) as theirs:
        # Observed: clients of both, and nothing waits.
        with start_mesh(tmp_path / "mesh", *args, env={"HMAS_MODE": "observe"}) as mesh:
            async with Load(theirs, rate=3.0) as old, Load(mesh.url, rate=3.0) as new:
                await asyncio.sleep(4.0)
            assert {each.mode for each in new.answered} == {"observe"}
            loads += [old, new]
        # Scheduled: clients move while the router still has some, of which the mesh knows by the engines' counts alone.
        with (
            start_mesh(tmp_path / "mesh", *args, env={"HMAS_STATIC_N_RUN": str(N_RUN)}) as mesh,
            CountLog(engines) as counts,
        ):
            async with Load(theirs, rate=2.0) as old, Load(mesh.url, rate=10.0) as new:
                theirs_most = 0
                for _ in range(60):
                    await asyncio.sleep(0.1)
                    theirs_most = max(theirs_most, old.running)
            assert {each.mode for each in new.answered} == {""}
            workers = [url for each, url in mesh.state["ops_urls"].items() if each.startswith("worker")]
            assert sum(metric(url, "hmas_worker_engines_owned") for url in workers) == 2
            loads += [old, new]
        over = counts.excesses(N_RUN)
        most = max((each.most for each in over), default=0)
        print(f"{name}: {len(new.answered)} by the mesh, {len(old.answered)} by the router; most above N_run {most}")
        assert most <= theirs_most
    # And back: the mesh is gone, and the router never noticed.
    with router(name, engines, tmp_path) as theirs:
        async with Load(theirs, rate=3.0) as old:
            await asyncio.sleep(2.0)
        loads.append(old)
    for load in loads:
        assert set(load.ends) == {"finished"}, (load.ends, load.details)

"""Engines that do whatever engines may do, beside one that is well, under load: each request ends within its bound,
whole or with a clear error; what the good engine serves is whole; no process ends, and none grows. HMAS_SOAK=2 makes it
ten minutes."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from hmas.mesh.ports import free_port
from tests.chaos.hurt import EngineLog, metric
from tests.chaos.load import REQUEST_TIMEOUT_S, Load
from tests.conftest import eventually
from tests.hostile.engine import PLAIN, PROMPT_TOKENS, STREAMED, honest

pytestmark = [pytest.mark.chaos, pytest.mark.long]
ROUNDS = int(os.environ.get("HMAS_SOAK", "0"))
LOAD_S = 300.0 * ROUNDS or 30.0
STALL_S, UNKNOWN_S, FACTOR, STARVED = 1.0, 3.0, 5.0, 3.0
MAX_TOKENS = 64
# The hostile engines take about 0.6 s to a first token and 0.02 s to the next, when they answer. A request may stall at
# each of the two in turn, each time for as long as is allowed, and wait before, between and after. On a busy machine
# they are slower, and with them what is allowed: what counts is that no client waits in vain (`REQUEST_TIMEOUT_S`).
LONGEST_S = max(STARVED * max(UNKNOWN_S, FACTOR * 0.6), FACTOR * (0.6 + MAX_TOKENS * 0.02))
GOAL_S = 2 * LONGEST_S + 10.0
LATE_S = 3.0  # by how much a run may outlast its own bound: the look at all runs, a busy machine, rounding
ENV = {
    "HMAS_ENGINE_STALL_S": str(STALL_S),
    "HMAS_ENGINE_STALL_FACTOR": str(FACTOR),
    "HMAS_ENGINE_UNKNOWN_STALL_S": str(UNKNOWN_S),
    "HMAS_ENGINE_STARVED_FACTOR": str(STARVED),
    "HMAS_NO_ENGINE_PATIENCE_S": "2",
}
STALLED = re.compile(r"run_stalled.* gave no token for (\d+) s, of which (\d+) s were allowed")
CLEAR = {"finished", "error:502", "error:503", "error:engine_error", "error:500"}
GROWTH_MIB = 30.0  # allowed from the first third of the load to the last


@dataclass
class TimedLoad(Load):
    """A load that also knows how long each request took, however it ended."""

    took_s: list[float] = field(default_factory=list)

    async def _one(self, i: int) -> None:
        began_s = time.monotonic()
        await super()._one(i)
        self.took_s.append(time.monotonic() - began_s)


@contextmanager
def process(*args: str, url: str) -> Iterator[None]:
    started = subprocess.Popen([sys.executable, "-m", *args], cwd=Path(__file__).parents[2])
    try:
        deadline_s = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"{url}/health", timeout=2)
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline_s, f"{args} did not start"
                time.sleep(0.1)
        yield
    finally:
        started.kill()
        started.wait()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    """Worker 1 has the good engine and a hostile one whose counters tell the truth now and then, worker 2 a hostile one
    whose counters always grow."""
    ports = [free_port() for _ in range(3)]
    good, truthful, growing = urls = [f"http://127.0.0.1:{port}" for port in ports]
    with (
        process("hmas.engine", "--port", str(ports[0]), "--served-model-name", "emulated", url=good),
        process("tests.hostile.engine", "--port", str(ports[1]), "--seed", "1", url=truthful),
        process("tests.hostile.engine", "--port", str(ports[2]), "--seed", "2", "--grows", url=growing),
    ):
        args = ["--replay", "--model", "emulated", "--max-num-seqs", "64", "--workers", "2"]
        for url in (good, growing, truthful):
            args += ["--engine", url]
        with start_mesh(tmp_path_factory.mktemp("hostile"), *args, env=ENV) as running:
            running.engines = urls
            yield running


def resident_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.timeout(LOAD_S + 150)
async def test_whatever_an_engine_does_each_request_ends_and_nothing_else_notices(mesh: Any) -> None:
    good, *hostile = mesh.engines
    names = ("gateway", "worker-1", "worker-2")
    pids = {name: mesh.pid(name) for name in names}
    books = EngineLog([good])
    sizes: dict[str, list[float]] = {name: [] for name in names}
    suspicions = 0.0
    async with TimedLoad(mesh.url, max_tokens=MAX_TOKENS) as load:
        until_s = time.monotonic() + LOAD_S
        while time.monotonic() < until_s:
            await asyncio.sleep(1.0)
            for name in names:
                sizes[name].append(resident_mib(pids[name]))
            urls = [mesh.state["ops_urls"][name] for name in names[1:]]
            suspicions += sum(metric(url, "hmas_worker_engine_suspected") for url in urls)
    acts: dict[str, int] = {}
    for url in hostile:
        for act, count in httpx.get(f"{url}/hmas/acts", timeout=5).json().items():
            acts[act] = acts.get(act, 0) + count
    stalled = metric(mesh.gateway_ops_url, "hmas_gateway_stalled_runs_total")
    growth = {name: max(each[-len(each) // 3 :]) - max(each[: len(each) // 3]) for name, each in sizes.items()}
    done = dict(sorted(acts.items()))
    last = ", ".join(f"{name} {sizes[name][-1]:.0f} ({grew:+.1f})" for name, grew in growth.items())
    print(
        f"ends {dict(load.ends)}; longest {max(load.took_s):.1f} s of {GOAL_S:.0f}; acts {done}; "
        f"{stalled:.0f} runs stalled; suspected for {suspicions:.0f} s; MiB at the end and growth: {last}"
    )

    assert {name: mesh.pid(name) for name in names} == pids  # none was started again
    assert set(load.ends) <= CLEAR, (load.ends, load.details)
    assert max(load.took_s) <= REQUEST_TIMEOUT_S
    assert load.ends["finished"] > 0.7 * load.ends.total()
    whole = {counts: n for counts, n in load.served.items() if counts[0] != PROMPT_TOKENS}
    assert books.served() == whole  # each that the good engine began came to its client, whole
    assert books.aborted() == 0
    assert stalled > 0
    assert suspicions > 0
    if ROUNDS:
        assert max(growth.values()) < GROWTH_MIB, growth
        assert acts.keys() == {act.__name__ for act in (honest, *STREAMED, *PLAIN)}
    # lines are passed on four times a second
    await eventually(lambda: len(STALLED.findall(mesh.output.read_text())) == stalled)
    log = mesh.output.read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 2000 :][:6000]
    stalls = [(int(silent), int(bound)) for silent, bound in STALLED.findall(log)]
    for silent, bound in stalls:  # it may have been starved first, and seen to stand still then
        assert silent <= max(STARVED * bound, LONGEST_S) + LATE_S, stalls
    assert "engine_suspected" in log


async def test_the_mesh_is_well_again_once_they_answer(mesh: Any) -> None:
    """Nothing of the former load is left: no run, no connection that waits."""
    await eventually(lambda: metric(mesh.gateway_ops_url, "hmas_gateway_live_requests") == 0, 60)
    good = mesh.engines[0]
    await eventually(lambda: metric(good, "vllm:num_requests_running") == 0, 20)

"""What the console costs those who are served: `python -m benchmarks.console`, some three minutes.

A mesh of two emulated engines gets requests at a constant rate. Without a console, with five streams of its pages that
are read as browsers read them, and with a console that is killed and started again in the middle, it prints the p50 and
p95 of TTFT and the CPU of gateway and workers per request: for each the median of the rounds, which take turns. Then it
prints how long one look at a queue keeps a worker's loop. The browsers' own CPU is not in it: they run elsewhere.
"""

import argparse
import asyncio
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from random import Random

import httpx
import psutil

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.request import Request, Slo
from hmas.mesh.state import MeshState, read_state
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.prior import Assumption
from hmas.worker.agent.queue import RequestQueue

PAGES = ("now", "queue", "control", "lanes", "jobs")  # one browser each
CASES = ("no console", "5 browsers", "killed")
SERVING = ("gateway", "worker-1", "worker-2")
WARM_S = 5.0
PORT = 8099
START_S = 120.0


@contextmanager
def mesh(folder: Path) -> Iterator[MeshState]:
    """Runs `hmas up` without a console."""
    argv = [str(Path(sys.executable).parent / "hmas"), "up", "--port", "0", "--no-console", "--data-dir", str(folder)]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_S
        while not (folder / "mesh.json").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the mesh did not start: {(folder / 'up.log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield read_state(folder)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@contextmanager
def console(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs `hmas console` for that mesh, and waits until it answers."""
    hmas = str(Path(sys.executable).parent / "hmas")
    argv = [hmas, "console", "--data-dir", str(folder), "--port", str(PORT)]
    with (folder / "console.log").open("ab") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                httpx.get(f"http://127.0.0.1:{PORT}/health", timeout=2).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


async def watch(page: str) -> None:
    """Reads a page's stream as a browser does, and opens it again when it breaks."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
            writer.write(f"GET /api/stream?page={page} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            if not (status := await reader.readline()).startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"the console does not answer as it should: {status.decode()}")
            while await reader.read(65536):
                pass
            writer.close()
        except OSError:
            pass
        await asyncio.sleep(0.5)


async def watch_all() -> None:
    await asyncio.gather(*map(watch, PAGES))


async def load(url: str, model: str, rps: float, seconds: float, seed: int) -> list[float]:
    """Sends requests at a constant rate, and returns their TTFT in s. A request that fails raises."""
    rng = Random(seed)
    limits = httpx.Limits(max_connections=1000)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:

        async def one(number: int) -> float:
            await asyncio.sleep(number / rps)
            body = {
                "model": model, "stream": True, "max_tokens": 64,
                "messages": [{"role": "user", "content": "Say something. " * rng.choice((5, 20, 80))}],
            }  # fmt: skip
            began_s = time.perf_counter()
            async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
                answer.raise_for_status()
                first_s = 0.0
                async for chunk in answer.aiter_raw():
                    if not first_s and b'"content"' in chunk:
                        first_s = time.perf_counter() - began_s
            return first_s

        return await asyncio.gather(*map(one, range(int(rps * seconds))))


def cpu_of(pid: int) -> float:
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


def cpu_s(state: MeshState) -> dict[str, float]:
    return {name: cpu_of(state.pids[name]) for name in SERVING}


def measured(state: MeshState, folder: Path, case: str, args: argparse.Namespace, seed: int) -> dict[str, float]:
    """Runs one case once. Times in ms."""
    watchers = None
    with console(folder) if case != CASES[0] else _nothing() as process:
        if process is not None:
            watchers = subprocess.Popen([sys.executable, "-m", "benchmarks.console", "--watch"])
        try:
            asyncio.run(load(state.gateway_url, state.pool, args.rps, WARM_S, seed))
            before, began_s = cpu_s(state), time.monotonic()
            shown_s = cpu_of(process.pid) if process is not None else 0.0
            if case == CASES[2] and process is not None:
                again = subprocess.Popen(
                    ["sh", "-c", f"sleep {args.seconds / 3}; kill -9 {process.pid}; sleep 1; exec {_again(folder)}"]
                )
            ttft_s = asyncio.run(load(state.gateway_url, state.pool, args.rps, args.seconds, seed + 1))
            after = cpu_s(state)
            shown_s = cpu_of(process.pid) - shown_s if case == CASES[1] and process is not None else 0.0
            share = shown_s / (time.monotonic() - began_s)
        finally:
            if watchers is not None:
                assert watchers.poll() is None, "the pages were not read"
                watchers.kill()
                watchers.wait()
            if case == CASES[2]:
                again.kill()
                again.wait()
    cuts = statistics.quantiles(ttft_s, n=20)
    spent = {name: 1e3 * (after[name] - before[name]) / len(ttft_s) for name in SERVING}
    return {
        "TTFT p50": 1e3 * cuts[9],
        "TTFT p95": 1e3 * cuts[18],
        "gateway CPU": spent["gateway"],
        "workers CPU": spent["worker-1"] + spent["worker-2"],
        "console's % of a core": 100.0 * share,
    }


def _again(folder: Path) -> str:
    return f"{Path(sys.executable).parent / 'hmas'} console --data-dir {folder} --port {PORT} >/dev/null 2>&1"


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def look_ms(count: int) -> float:
    """Returns how long copying a queue of `count` requests takes, the least of five."""
    queue = RequestQueue(10**6, 10**9, Random(1))
    queue.switch(TopologyName.MAX_ON_TIME, Hints())
    for seq in range(count):
        request = Request(
            id=f"r{seq}", model="m", tenant=f"t{seq % 50}", flow="", prompt_tokens=100, max_tokens=None, stream=True,
            slo=Slo(2.0, 0.1), slo_stated=True, priority=0, weight=1.0, importance=0.5, arrival_s=seq / 100,
        )  # fmt: skip
        entry = QueueEntry(
            request, attempt=1, gateway="g", seq=seq, now_s=seq / 100, estimate=Assumption(50.0, 100.0, 0.1, 0.02)
        )
        queue.add(entry)
        queue.wake(entry)
    least = float("inf")
    for _ in range(5):
        began_s = time.process_time()
        memo: dict[int, object] = {}
        deepcopy(queue.order(0), memo)
        deepcopy(queue.queued(), memo)
        least = min(least, time.process_time() - began_s)
    return 1e3 * least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rps", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.watch:
        asyncio.run(watch_all())
        return
    runs: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as name, mesh(Path(name)) as state:
        for turn in range(args.rounds):
            for case in CASES:
                runs[case].append(measured(state, Path(name), case, args, 10 * turn))
    columns = list(runs[CASES[0]][0])
    print(f"{args.rps:g} requests/s, {args.seconds:g} s, median of {args.rounds} rounds (least to most), ms")
    print(f"| | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for case, told in runs.items():
        cells = []
        for column in columns:
            values = sorted(run[column] for run in told)
            cells.append(f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})")
        print(f"| {case} | {' | '.join(cells)} |")
    for count in (100, 1000, 4000):
        print(f"one look at {count} requests that wait: {look_ms(count):.1f} ms of the worker's loop")


if __name__ == "__main__":
    main()

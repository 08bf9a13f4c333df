"""What the console costs those who are served: `python -m benchmarks.console`, some ten minutes.

A mesh of two emulated engines gets requests at a constant rate. The same load is run without a console, with five
streams of its pages that are read as browsers read them, and with a console that is killed and started again in the
middle. The cases take turns within a round, each round in another order, and a round's difference is taken from the
case without a console of the same round, so that a machine whose other work comes and goes spoils single rounds and not
the result. The page tells TTFT and the CPU of gateway, workers and NATS per request, and how long one look at a queue
keeps a worker's loop. The browsers' own CPU is not in it: they run elsewhere, and here with the lowest priority.
"""

import argparse
import asyncio
import csv
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from random import Random

import httpx
import psutil

from experiments.pages.template import render
from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.request import Request, Slo
from hmas.mesh.state import MeshState, read_state
from hmas.worker.agent.entry.assumption import Assumption
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.queue import RequestQueue

PAGES = ("now", "queue", "control", "lanes", "jobs")  # one browser each
NONE, WATCHED, KILLED = CASES = ("no console", "5 browsers", "killed")
WORKERS = ("worker-1", "worker-2")
COLUMNS = ("TTFT p50", "TTFT p95", "gateway", "workers", "NATS")  # ms, the last three of CPU per request
WARM_S = 3.0
PORT = 8099
START_S = 120.0
DRAWS = 10_000  # of the bootstrap
RESULTS = Path(__file__).parents[1] / "docs/results"


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
    """Runs `hmas console` for that mesh, in a session of its own as `hmas up` does, and waits until it answers."""
    hmas = str(Path(sys.executable).parent / "hmas")
    argv = [hmas, "console", "--data-dir", str(folder), "--port", str(PORT)]
    with (folder / "console.log").open("ab") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
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
    """Returns the CPU that the serving processes have used, in s."""
    supervisor = psutil.Process(state.pids["gateway"]).parent()
    assert supervisor is not None
    nats = next(child.pid for child in supervisor.children() if "nats-server" in child.name())
    return {
        "gateway": cpu_of(state.pids["gateway"]),
        "workers": sum(cpu_of(state.pids[name]) for name in WORKERS),
        "NATS": cpu_of(nats),
    }


def measured(state: MeshState, folder: Path, case: str, args: argparse.Namespace, seed: int) -> dict[str, float]:
    """Runs one case once. Times in ms."""
    watchers = again = None
    with console(folder) if case != NONE else _nothing() as process:
        if process is not None:
            watchers = subprocess.Popen(["nice", "-n", "19", sys.executable, "-m", "benchmarks.console", "--watch"])
        try:
            asyncio.run(load(state.gateway_url, state.pool, args.rps, WARM_S, seed))
            before, began_s = cpu_s(state), time.monotonic()
            shown_s = cpu_of(process.pid) if process is not None else 0.0
            if case == KILLED and process is not None:
                again = subprocess.Popen(
                    ["sh", "-c", f"sleep {args.seconds / 3}; kill -9 {process.pid}; sleep 1; exec {_again(folder)}"],
                    start_new_session=True,
                )
            ttft_s = asyncio.run(load(state.gateway_url, state.pool, args.rps, args.seconds, seed))
            after = cpu_s(state)
            shown_s = cpu_of(process.pid) - shown_s if case == WATCHED and process is not None else 0.0
            share = shown_s / (time.monotonic() - began_s)
        finally:
            if watchers is not None:
                assert watchers.poll() is None, "the pages were not read"
                watchers.kill()
                watchers.wait()
            if again is not None:
                again.kill()
                again.wait()
    cuts = statistics.quantiles(ttft_s, n=20)
    spent = {name: 1e3 * (after[name] - before[name]) / len(ttft_s) for name in after}
    return {"TTFT p50": 1e3 * cuts[9], "TTFT p95": 1e3 * cuts[18], **spent, "console": 100.0 * share}


def _again(folder: Path) -> str:
    return f"{Path(sys.executable).parent / 'hmas'} console --data-dir {folder} --port {PORT} >/dev/null 2>&1"


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def look_ms(count: int) -> float:
    """Returns how long copying a queue of `count` requests takes, the least of five."""
    queue = RequestQueue(10**6, 10**9)
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


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Returns the 90 % interval of the median of paired differences, by the bootstrap."""
    rng = Random(1)
    medians = sorted(statistics.median(rng.choices(differences, k=len(differences))) for _ in range(DRAWS))
    return medians[DRAWS // 20], medians[-DRAWS // 20]


def quartiles(values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def differences(runs: dict[str, list[dict[str, float]]], case: str, column: str) -> list[float]:
    return [run[column] - base[column] for run, base in zip(runs[case], runs[NONE], strict=True)]


def change(runs: dict[str, list[dict[str, float]]], case: str, column: str) -> str:
    found = differences(runs, case, column)
    low, high = interval(found)
    return f"{statistics.median(found):+.2f} ({low:+.2f} to {high:+.2f})"


def verdict(runs: dict[str, list[dict[str, float]]]) -> str:
    """Says which differences are beyond chance."""
    beyond = []
    for case in (WATCHED, KILLED):
        for column in COLUMNS:
            low, high = interval(differences(runs, case, column))
            if low > 0.0 or high < 0.0:
                beyond.append(f"{case}, {column}: {low:+.2f} to {high:+.2f} ms")
    return (
        f"Beyond chance: {'; '.join(beyond)}." if beyond else "No difference is beyond chance: each interval holds 0."
    )


def page(runs: dict[str, list[dict[str, float]]], args: argparse.Namespace) -> str:
    return render(
        Path(__file__).with_name("console.md.j2"), rps=f"{args.rps:g}", seconds=f"{args.seconds:g}",
        rounds=len(runs[NONE]), verdict=verdict(runs), load=f"{os.getloadavg()[2]:.0f}", cores=os.cpu_count(),
        levels=[(case, *(quartiles([run[column] for run in of]) for column in COLUMNS)) for case, of in runs.items()],
        changes=[(case, *(change(runs, case, column) for column in COLUMNS)) for case in (WATCHED, KILLED)],
        columns=COLUMNS, share=quartiles([run["console"] for run in runs[WATCHED]]),
        looks=[(str(count), f"{look_ms(count):.1f}") for count in (100, 1000, 4000)],
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rps", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for console.md and console.csv")
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.watch:
        asyncio.run(watch_all())
        return
    runs: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    orders = Random(1)
    with tempfile.TemporaryDirectory() as name, mesh(Path(name)) as state:
        asyncio.run(load(state.gateway_url, state.pool, args.rps, WARM_S, 0))
        for turn in range(args.rounds):
            for case in orders.sample(CASES, len(CASES)):
                told = measured(state, Path(name), case, args, turn)
                runs[case].append(told)
                print(turn, case, " ".join(f"{key} {value:.2f}" for key, value in told.items()), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "console.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("round", "case", *(f"{column} ms" for column in COLUMNS), "console % of a core"))
        for case, of in runs.items():
            rows.writerows((turn, case, *(f"{value:.3f}" for value in told.values())) for turn, told in enumerate(of))
    (args.out / "console.md").write_text(page(runs, args), encoding="utf-8")
    print(page(runs, args))


if __name__ == "__main__":
    main()

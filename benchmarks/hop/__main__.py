"""`make bench-hop` compares relays by CPU time per relayed token, added TTFT, saturated throughput and CPU time per
plain (not streamed) request.

The relay, of the mesh gateway and worker, has one core; the mock engine, the client and the mesh's other processes
share the other.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.hop import systems
from benchmarks.hop.page import BARE, COLUMNS, DIRECT, MESH, SINGLE, cells, goals, page
from benchmarks.hop.systems import Running
from benchmarks.run import table_of, write_json
from hmas.laws.scoring import quantile
from hmas.mesh.nats_server import free_port

RELAY_CPUS, OTHER_CPUS = {0}, {1}
RATE, TOKENS, GAP_MS = 50, 64, 20
SATURATING_STREAMS = 1200
PLAIN_WIDTH = 32


def client(url: str, mode: str, n: float, seconds: float, key: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "benchmarks.hop.client", url, mode, str(n), "--seconds", str(seconds)]
    argv += ["--tokens", str(TOKENS), "--model", systems.MODEL, "--key", key]
    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, OTHER_CPUS)), *argv], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the measuring client failed with status {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout))


def measure(system: Running, seconds: float) -> dict[str, Any]:
    """Measures one system under three loads: a fixed rate, saturating streams, and plain requests. Returns CPU times in
    µs, TTFT in s, throughputs per second, and the number of failed requests."""
    client(system.url, "rate", RATE, 2, system.key)  # warm-up
    result: dict[str, Any] = {"name": system.name}
    before = system.cpu_s()
    rated = client(system.url, "rate", RATE, seconds, system.key)
    result["us_per_token"] = (system.cpu_s() - before) * 1e6 / max(rated["tokens"], 1)
    ttft = sorted(rated["ttft_s"])
    result["ttft_p50_s"], result["ttft_p99_s"] = quantile(ttft, 0.5), quantile(ttft, 0.99)
    full = client(system.url, "streams", SATURATING_STREAMS, seconds, system.key)
    result["saturated_tokens_per_s"] = full["tokens"] / full["window_s"]
    before = system.cpu_s()
    plain = client(system.url, "plain", PLAIN_WIDTH, seconds / 2, system.key)
    result["us_per_plain_request"] = (system.cpu_s() - before) * 1e6 / max(plain["finished"], 1)
    result["plain_per_s"] = plain["finished"] / (seconds / 2)
    result["errors"] = rated["errors"] + full["errors"] + plain["errors"]
    return result


Starter = Callable[[], AbstractContextManager[Running]]


def starters(upstream: str, directory: Path, peers: bool) -> dict[str, Starter]:
    """Returns, by name, how to start each system that is compared. `upstream` is the mock engine's URL, `directory` a
    scratch folder; `peers` adds LiteLLM's proxy and sglang-router."""
    every: dict[str, Starter] = {
        DIRECT: lambda: nullcontext(Running(DIRECT, upstream, ())),
        BARE: lambda: systems.tcp_relays(upstream, RELAY_CPUS),
        "FastAPI + httpx": lambda: systems.fastapi_relay("httpx", upstream, RELAY_CPUS),
        SINGLE: lambda: systems.fastapi_relay("aiohttp", upstream, RELAY_CPUS),
        MESH: lambda: systems.hmas(upstream, RELAY_CPUS, OTHER_CPUS, directory),
    }
    if peers:
        every["LiteLLM proxy"] = lambda: systems.litellm(upstream, RELAY_CPUS, directory)
        every["sglang-router"] = lambda: systems.sglang_router(upstream, RELAY_CPUS)
    return every


def comparison(results: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", collapse_padding=True)
    for i, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if i else "left", no_wrap=i == 0, overflow="fold")
    for result in results:
        table.add_row(*cells(result))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--peers", action="store_true", help="also measure LiteLLM's proxy and sglang-router")
    parser.add_argument("--seconds", type=float, default=12, help="length of each load, s")
    parser.add_argument("--page", type=Path, help="also write the results to this file as Markdown; not with --only")
    parser.add_argument("--only", help="measure only `no hop` and the systems whose name contains this")
    args = parser.parse_args()
    if args.page and args.only:
        parser.error("--page needs the results of every system: leave out --only")
    console = Console()
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.mock_engine", "--port", str(port), "--gap-ms", str(GAP_MS)]
    results = []
    with tempfile.TemporaryDirectory() as scratch, systems.process(argv, port, OTHER_CPUS):
        for name, start in starters(f"http://127.0.0.1:{port}", Path(scratch), args.peers).items():
            if args.only and args.only.lower() not in name.lower() and name != DIRECT:
                continue
            with start() as system:
                console.print(f"[dim]{system.name} ...[/dim]")
                results.append(measure(system, args.seconds))
    console.print(comparison(results))
    ours = next((r for r in results if r["name"] == MESH), None)
    if ours is not None:
        rows = goals(results[0], ours)
        console.print(table_of(rows))
        if args.json:
            write_json(
                args.json,
                [
                    *rows,
                    *(
                        {**r, "value": r["us_per_token"], "unit": "µs/token", "goal": None, "met": None}
                        for r in results
                    ),
                ],
            )
    if args.page:
        args.page.write_text(page(results, args.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())

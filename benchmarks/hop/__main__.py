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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.hop import systems
from benchmarks.hop.page import (
    BARE,
    BLIND,
    COLUMNS,
    DIRECT,
    MESH,
    OVER_TLS,
    PICKER,
    RUST,
    SINGLE,
    UNREAD,
    cells,
    goals,
    median_of,
    page,
    perception_page,
    picker_page,
    prompts_page,
    tls_page,
)
from benchmarks.hop.systems import Running
from benchmarks.run import table_of, write_json
from hmas.laws.scoring import quantile
from hmas.mesh.ports import free_port

RELAY_CPUS, OTHER_CPUS = {0}, {1}
TOKENS, LONGER_TOKENS, GAP_MS = 64, 256, 20
WORDS = 512  # of the prompts that are followed or not, of four bytes each
TRIED = Path(__file__).with_name("tried.md")  # what was tried for goals that are missed


@dataclass(frozen=True, slots=True)
class Loads:
    """Requests per second, streams at once, and plain requests at once."""

    rate: int = 50
    streams: int = 1200
    plain: int = 32


FULL = Loads()
EASY = Loads(25, 100, 8)  # at which a core that others share is not full
GENTLE = (Loads(10, 10, 4), Loads(25, 25, 4))  # for relays that collapse under the full loads


def client(
    system: Running, mode: str, n: float, seconds: float, tokens: int = TOKENS, words: int | None = None
) -> dict[str, Any]:
    argv = [sys.executable, "-m", "benchmarks.hop.client", system.url, mode, str(n), "--seconds", str(seconds)]
    argv += ["--tokens", str(tokens), "--model", systems.MODEL, "--key", system.key]
    argv += ["--ca", str(system.ca)] if system.ca else []
    argv += [] if words is None else ["--words", str(words)]
    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, OTHER_CPUS)), *argv], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the measuring client failed with status {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout))


def measure(system: Running, loads: Loads, seconds: float) -> dict[str, Any]:
    """Measures one system under three loads: a fixed rate, saturating streams, and plain requests. Returns CPU times in
    µs, TTFT in s, throughputs per second, and the number of failed requests."""
    client(system, "rate", loads.rate, 2)  # warm-up
    name = system.name if loads in (FULL, EASY) else f"{system.name}, {loads.rate}/s"
    result: dict[str, Any] = {"name": name}
    granted, ended = (system.counted(f"hmas_{metric}_total") for metric in ("worker_grants", "gateway_requests"))
    before = system.cpu_s()
    rated = client(system, "rate", loads.rate, seconds)
    used = [(now - then) * 1e6 / max(rated["tokens"], 1) for now, then in zip(system.cpu_s(), before, strict=True)]
    result["us_per_token"], result["worker_us_per_token"], _, result["others_us_per_token"] = used
    ttft = sorted(rated["ttft_s"])
    result["ttft_p50_s"], result["ttft_p99_s"] = quantile(ttft, 0.5), quantile(ttft, 0.99)
    full = client(system, "streams", loads.streams, seconds)
    result["saturated_tokens_per_s"] = full["tokens"] / full["window_s"]
    before = system.cpu_s()
    plain = client(system, "plain", loads.plain, seconds / 2)
    used = [(now - then) * 1e6 / max(plain["finished"], 1) for now, then in zip(system.cpu_s(), before, strict=True)]
    result["us_per_plain_request"], result["worker_us_per_plain_request"], result["proxy_us_per_plain_request"], _ = (
        used
    )
    result["plain_per_s"] = plain["finished"] / (seconds / 2)
    result["errors"] = rated["errors"] + full["errors"] + plain["errors"]
    if system.workers:
        granted = system.counted("hmas_worker_grants_total") - granted
        ended = system.counted("hmas_gateway_requests_total") - ended
        result["granted_share"] = min(1.0, granted / max(ended, 1))
        result |= _slopes(system, loads, seconds)
    return result


def _slopes(system: Running, loads: Loads, seconds: float) -> dict[str, Any]:
    """Returns the CPU time in µs of a streamed answer of `TOKENS` tokens, and of each further token: of gateway, worker
    and proxy."""
    rate, costs = loads.rate / 2, []
    for tokens in (TOKENS, LONGER_TOKENS):
        before = system.cpu_s()
        done = client(system, "rate", rate, seconds, tokens)
        every, worker, proxy, _ = (
            (now - then) * 1e6 / max(done["finished"], 1) for now, then in zip(system.cpu_s(), before, strict=True)
        )
        costs.append((every - worker - proxy, worker, proxy))
    slopes: dict[str, Any] = {}
    for name, short, long in zip(("gateway", "worker", "proxy"), *costs, strict=True):
        slopes[f"{name}_us_per_stream"] = short
        slopes[f"{name}_slope"] = (long - short) / (LONGER_TOKENS - TOKENS)
    return slopes


def measure_prompts(system: Running, seconds: float) -> dict[str, Any]:
    """Measures one system under two loads of longer prompts. Returns CPU times in µs and the number of failed
    requests."""
    result: dict[str, Any] = {"name": system.name, "errors": 0}
    for mode, n, key in (("rate", FULL.rate, "us_per_stream"), ("plain", FULL.plain, "us_per_plain_request")):
        client(system, mode, n, 2, words=WORDS)  # warm-up
        before = system.cpu_s()[0]
        done = client(system, mode, n, seconds, words=WORDS)
        result[key] = (system.cpu_s()[0] - before) * 1e6 / max(done["finished"], 1)
        result["errors"] += done["errors"]
    return result


def run_pairs(other: str, seconds: float, pairs: int, console: Console) -> list[dict[str, Any]]:
    """Measures the mesh that ships and the variant `other`, in pairs whose order turns. Raises RuntimeError if a mesh
    is not what its variant says."""
    port, found = free_port(), list[dict[str, Any]]()
    argv = [sys.executable, "-m", "benchmarks.mock_engine", "--port", str(port), "--gap-ms", str(GAP_MS)]
    with systems.process(argv, port, OTHER_CPUS):
        for pair in range(pairs):
            for variant in (MESH, other) if pair % 2 == 0 else (other, MESH):
                with (
                    tempfile.TemporaryDirectory() as scratch,
                    systems.hmas(
                        f"http://127.0.0.1:{port}", RELAY_CPUS, OTHER_CPUS, Path(scratch), variant=variant
                    ) as system,
                ):
                    result = measure_prompts(system, seconds)
                    result["read"] = system.counted("hmas_perception_prompts_total", source="model")
                    result["left"] = system.counted("hmas_perception_prompts_total", source="prior")
                    followed = system.counted("hmas_gateway_job_calls_total") > 0
                    if followed != (variant != BLIND) or (result["read"] > 0) != (variant != UNREAD):
                        raise RuntimeError(f"{variant}: prompts followed: {followed}, read: {result['read']:g}")
                    found.append(result)
                console.print(f"[dim]{found[-1]}[/dim]")
    return found


Starter = Callable[[], AbstractContextManager[Running]]


def starters(
    upstream: str, directory: Path, peers: bool, tls: bool, picker: bool
) -> dict[str, tuple[Starter, tuple[Loads, ...]]]:
    """Returns, by name, how to start each system that is compared, and its loads. `upstream` is the mock engine's URL,
    `directory` a scratch folder; `peers` adds LiteLLM's proxy and the Rust routers, `tls` is for the systems that serve
    TLS alone, and `picker` for the endpoint picker beside the gateway."""
    full = (FULL,)
    every: dict[str, tuple[Starter, tuple[Loads, ...]]] = {
        DIRECT: (lambda: nullcontext(Running(DIRECT, upstream, ())), full),
        BARE: (lambda: systems.tcp_relays(upstream, RELAY_CPUS), full),
        SINGLE: (lambda: systems.fastapi_relay(upstream, RELAY_CPUS), full),
        MESH: (lambda: systems.hmas(upstream, RELAY_CPUS, OTHER_CPUS, directory), full),
    }
    if picker:
        every[PICKER] = (lambda: systems.picker(upstream, RELAY_CPUS, OTHER_CPUS, directory), full)
        return {name: (every[name][0], (EASY,)) for name in (DIRECT, MESH, PICKER)}
    if tls:
        every[SINGLE + OVER_TLS] = (lambda: systems.fastapi_relay_tls(upstream, RELAY_CPUS, directory), full)
        every[MESH + OVER_TLS] = (lambda: systems.hmas(upstream, RELAY_CPUS, OTHER_CPUS, directory, tls=True), full)
        return {name: every[name] for name in (DIRECT, SINGLE, SINGLE + OVER_TLS, MESH, MESH + OVER_TLS)}
    if peers:
        for name in RUST:
            every[name] = (partial(systems.rust_router, name, upstream, RELAY_CPUS), full)
        every["LiteLLM proxy"] = (lambda: systems.litellm(upstream, RELAY_CPUS, directory), GENTLE)
    return every


def comparison(results: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", collapse_padding=True)
    for i, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if i else "left", no_wrap=i == 0, overflow="fold")
    for result in results:
        table.add_row(*cells(result))
    return table


def run(
    seconds: float, runs: int, *, peers: bool, tls: bool, picker: bool, only: str | None, console: Console
) -> list[dict[str, Any]]:
    """Measures every system `runs` times in turn, and returns the medians."""
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.mock_engine", "--port", str(port), "--gap-ms", str(GAP_MS)]
    found: dict[str, list[dict[str, Any]]] = {}
    for turn in range(runs):
        with tempfile.TemporaryDirectory() as scratch, systems.process(argv, port, OTHER_CPUS):
            url, folder = f"http://127.0.0.1:{port}", Path(scratch)
            for name, (start, every) in starters(url, folder, peers, tls, picker).items():
                if only and only.lower() not in name.lower() and name != DIRECT:
                    continue
                console.print(f"[dim]{name}, run {turn + 1} of {runs} ...[/dim]")
                try:
                    with start() as system:
                        for loads in every:
                            result = measure(system, loads, seconds)
                            found.setdefault(result["name"], []).append(result)
                except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                    if name in (DIRECT, MESH, MESH + OVER_TLS, PICKER):
                        raise
                    console.print(f"[red]{name} could not be measured:[/red] {error}")
    return [median_of(results) for results in found.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--peers", action="store_true", help="also measure LiteLLM's proxy, sglang-router, vllm-router")
    parser.add_argument("--tls", action="store_true", help="measure what TLS to the clients costs, nothing else")
    parser.add_argument(
        "--picker", action="store_true", help="measure the endpoint picker and the gateway, nothing else"
    )
    parser.add_argument("--prompts", action="store_true", help="measure what following prompts costs, nothing else")
    parser.add_argument("--perception", action="store_true", help="measure what perception costs, nothing else")
    parser.add_argument("--seconds", type=float, default=8, help="length of each load, s")
    parser.add_argument("--runs", type=int, default=3, help="runs of each system, in turn")
    parser.add_argument("--page", type=Path, help="also write the results to this file as Markdown; not with --only")
    parser.add_argument("--only", help="measure only `no hop` and the systems whose name contains this")
    args = parser.parse_args()
    if args.page and args.only:
        parser.error("--page needs the results of every system: leave out --only")
    console = Console()
    if args.prompts or args.perception:
        other, told = (BLIND, prompts_page) if args.prompts else (UNREAD, perception_page)
        pairs = run_pairs(other, args.seconds, args.runs, console)
        text = told(pairs, args.seconds, WORDS)
        if args.page:
            args.page.with_suffix(".json").write_text(json.dumps(pairs, indent=1) + "\n")
        args.page.write_text(text) if args.page else console.print(text)
        return 0
    results = run(
        args.seconds, args.runs, peers=args.peers, tls=args.tls, picker=args.picker, only=args.only, console=console
    )
    console.print(comparison(results))
    if any(result["name"] == MESH for result in results):
        rows = goals(results)
        console.print(table_of(rows))
        if args.json:
            systems_rows = [
                {**r, "value": r["us_per_token"], "unit": "µs/token", "goal": None, "met": None} for r in results
            ]
            write_json(args.json, [*rows, *systems_rows])
    if args.page:
        if args.tls:
            text = tls_page(results, args.seconds)
        elif args.picker:
            text = picker_page(results, args.seconds, EASY.rate)
        else:
            text = page(results, args.seconds, TRIED.read_text().strip())
        args.page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Starts and stops the relays that the hop benchmark compares."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.hop.envoy import configuration, envoy
from benchmarks.hop.page import BARE, BLIND, MESH, OVER_TLS, PICKER, RUST, SINGLE, UNREAD
from hmas.mesh.certificates import make_certificates
from hmas.mesh.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PEERS_VENV = ROOT / ".hmas" / "peers"
START_TIMEOUT_S = 300.0  # importing LiteLLM takes a minute or two on a busy core
MODEL = "mock"
VARIANTS: Mapping[str, Mapping[str, str]] = {  # the settings of each
    MESH: {},
    BLIND: {"HMAS_FOLLOW_PROMPTS": "false"},
    UNREAD: {"HMAS_PERCEPTION_BACKEND": "prior"},
}


@dataclass(frozen=True, slots=True)
class Running:
    """A relay that is running: its URL, the API key that it accepts, and the processes whose CPU time is measured.

    `relays` are all that stand on a request's way; `workers` those of them that are H-MAS's workers, `proxies` those
    that are no part of H-MAS, and `others` the mesh's further processes. `metrics` are the URLs of H-MAS's gateways,
    workers and perception, `ops_headers` what they ask for. `ca` is the authority's file where the URL is a https one.
    """

    name: str
    url: str
    relays: tuple[psutil.Process, ...]
    key: str = "none"
    ca: Path | None = None
    workers: tuple[psutil.Process, ...] = ()
    others: tuple[psutil.Process, ...] = ()
    proxies: tuple[psutil.Process, ...] = ()
    metrics: tuple[str, ...] = ()
    ops_headers: dict[str, str] = field(default_factory=dict)

    def cpu_s(self) -> tuple[float, float, float, float]:
        """Returns the user and system CPU time so far, in seconds: of the relay's processes and their children, of the
        workers and of the proxies among them, and of the others."""
        return _cpu_s(self.relays), _cpu_s(self.workers), _cpu_s(self.proxies), _cpu_s(self.others)

    def counted(self, metric: str, **labels: str) -> float:
        """Returns the sum of a counter, with these labels, over all of H-MAS's gateways and workers and perception."""
        total = 0.0
        for url in self.metrics:
            families = text_string_to_metric_families(httpx.get(f"{url}/metrics", headers=self.ops_headers).text)
            samples = (sample for family in families for sample in family.samples if sample.name == metric)
            total += sum(sample.value for sample in samples if labels.items() <= sample.labels.items())
        return total


def _cpu_s(processes: tuple[psutil.Process, ...]) -> float:
    total = 0.0
    for parent in processes:
        for process in (parent, *parent.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def environment(**more: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**env, **more}


def wait_port(port: int, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    output.seek(0)
    said = output.read().decode(errors="replace")[-2000:]
    raise RuntimeError(
        f"{process.args!r} did not listen on port {port} within {START_TIMEOUT_S:g} s; its output was:\n{said}"
    )


@contextmanager
def process(argv: list[str], port: int, cpus: set[int], **env: str) -> Iterator[psutil.Process]:
    with TemporaryFile() as output:
        child = subprocess.Popen(argv, cwd=ROOT, env=environment(**env), stdout=output, stderr=subprocess.STDOUT)
        try:
            os.sched_setaffinity(child.pid, cpus)
            wait_port(port, child, output)
            yield psutil.Process(child.pid)
        finally:
            child.terminate()
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def certificate(directory: Path) -> tuple[Path, Path, Path]:
    """Makes a certificate for 127.0.0.1 and returns the files of the authority, the certificate and its key."""
    make_certificates(directory / "certificates", 1.0, ("127.0.0.1",))
    home = directory / "certificates" / "gateway"
    return home / "ca.pem", home / "cert.pem", home / "key.pem"


@contextmanager
def fastapi_relay(upstream: str, cpus: set[int]) -> Iterator[Running]:
    with process(*_uvicorn(port := free_port()), cpus, UPSTREAM=upstream) as relay:
        yield Running(SINGLE, f"http://127.0.0.1:{port}", (relay,))


@contextmanager
def fastapi_relay_tls(upstream: str, cpus: set[int], directory: Path) -> Iterator[Running]:
    ca, cert, key = certificate(directory)
    argv, port = _uvicorn(free_port())
    with process(
        [*argv, "--ssl-certfile", str(cert), "--ssl-keyfile", str(key)], port, cpus, UPSTREAM=upstream
    ) as relay:
        yield Running(SINGLE + OVER_TLS, f"https://127.0.0.1:{port}", (relay,), ca=ca)


def _uvicorn(port: int) -> tuple[list[str], int]:
    argv = [sys.executable, "-m", "uvicorn", "benchmarks.hop.relay_aiohttp:app", "--port", str(port)]
    argv += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error"]
    return argv, port


@contextmanager
def tcp_relays(upstream: str, cpus: set[int]) -> Iterator[Running]:
    """Runs two TCP relays in a row, like gateway and worker: the least that any two Python processes in a row cost."""
    first, second = free_port(), free_port()
    argv = [sys.executable, "-m", "benchmarks.hop.relay_tcp"]
    upstream_port = upstream.rsplit(":", 1)[1]
    with (
        process([*argv, str(second), upstream_port], second, cpus) as inner,
        process([*argv, str(first), str(second)], first, cpus) as outer,
    ):
        yield Running(BARE, f"http://127.0.0.1:{first}", (outer, inner))


@contextmanager
def hmas(
    upstream: str,
    relay_cpus: set[int],
    other_cpus: set[int],
    directory: Path,
    *,
    tls: bool = False,
    picker_port: int | None = None,
    variant: str = MESH,
) -> Iterator[Running]:
    """Runs the whole mesh with API keys, scheduling and metrics. Gateway and worker run on `relay_cpus`, its other
    processes on `other_cpus`. `picker_port`: that of its endpoint picker, if it is to have one. `variant`: which of
    `VARIANTS` it is."""
    directory = directory / ("tls" if tls else "plain" if picker_port is None else "picker")
    directory.mkdir()
    tenants = directory / "tenants.yaml"
    tenants.write_text("tenants:\n  bench: {}\n")
    hmas_bin = str(Path(sys.executable).parent / "hmas")
    made = subprocess.run(
        [hmas_bin, "keys", "make", "bench", "--file", str(tenants)], capture_output=True, text=True, check=True
    )
    key = made.stdout.strip()
    port = free_port()
    argv = [hmas_bin, "up", "--port", str(port), "--engine", upstream, "--model", MODEL, "--tenants", str(tenants)]
    argv += ["--max-num-seqs", "4096"]  # the mock engine takes any number of streams and cannot tell
    ca = None
    if tls:
        ca, cert, cert_key = certificate(directory)
        argv += ["--tls-cert", str(cert), "--tls-key", str(cert_key)]
    env = dict(VARIANTS[variant])
    env |= {} if picker_port is None else {"HMAS_PICKER_PORT": str(picker_port)}
    with process([*argv, "--data-dir", str(directory)], port, other_cpus, **env) as supervisor:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (directory / "mesh.json").exists():
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"the mesh was not ready within {START_TIMEOUT_S:g} s: {directory / 'mesh.json'} is missing"
                )
            time.sleep(0.1)
        named = {child.environ().get("HMAS_PROCESS", ""): child for child in supervisor.children(recursive=True)}
        relays = [name for name in named if name == "gateway" or name.startswith("worker")]
        for name in relays:
            for thread in named[name].threads():
                os.sched_setaffinity(thread.id, relay_cpus)
        state = json.loads((directory / "mesh.json").read_text())
        ops = state["ops_urls"]
        yield Running(
            variant + OVER_TLS if tls else variant,
            f"{'https' if tls else 'http'}://127.0.0.1:{port}",
            tuple(named[name] for name in relays),
            key,
            ca,
            workers=tuple(named[name] for name in relays if name != "gateway"),
            others=tuple(process for name, process in named.items() if name not in relays),
            metrics=tuple(ops[name] for name in (*relays, "perception")),
            ops_headers={"authorization": f"Bearer {Path(state['ops_token_file']).read_text()}"},
        )


@contextmanager
def picker(upstream: str, relay_cpus: set[int], other_cpus: set[int], directory: Path) -> Iterator[Running]:
    """Runs the mesh as an endpoint picker, with an Envoy on `relay_cpus` that carries the requests."""
    port, picker_port = free_port(), free_port()
    with hmas(upstream, relay_cpus, other_cpus, directory, picker_port=picker_port) as mesh:
        gateway_port = int(mesh.url.rsplit(":", 1)[1])
        folder = directory / "envoy"
        folder.mkdir()
        document = configuration(port=port, admin_port=free_port(), picker_port=picker_port, gateway_port=gateway_port)
        with envoy(folder, document) as started:
            proxy = psutil.Process(started.pid)
            for thread in proxy.threads():
                os.sched_setaffinity(thread.id, relay_cpus)
            yield replace(
                mesh, name=PICKER, url=f"http://127.0.0.1:{port}", relays=(*mesh.relays, proxy), proxies=(proxy,)
            )


def peers_python() -> Path:
    """Returns the Python of the virtual environment for LiteLLM and the Rust routers, which is made on first use."""
    python = PEERS_VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS_VENV)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "litellm[proxy]", *RUST], check=True)
    return python


@contextmanager
def litellm(upstream: str, cpus: set[int], directory: Path) -> Iterator[Running]:
    port, config, key = free_port(), directory / "litellm.yaml", f"sk-{secrets.token_hex(16)}"
    config.write_text(
        f"model_list:\n  - model_name: {MODEL}\n    litellm_params:\n      model: openai/{MODEL}\n"
        f"      api_base: {upstream}/v1\n      api_key: none\n"
    )
    argv = [str(peers_python().parent / "litellm"), "--config", str(config), "--port", str(port), "--num_workers", "1"]
    env = {
        "LITELLM_MASTER_KEY": key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # keeps LiteLLM from downloading its list of prices
    with process(argv, port, cpus, **env) as relay:
        yield Running("LiteLLM proxy", f"http://127.0.0.1:{port}", (relay,), key)


@contextmanager
def rust_router(name: str, upstream: str, cpus: set[int]) -> Iterator[Running]:
    """Runs sglang-router or vllm-router, which have the same options."""
    port = free_port()
    module = name.replace("-", "_")
    argv = [str(peers_python()), "-m", f"{module}.launch_router", "--worker-urls", upstream, "--port", str(port)]
    argv += ["--policy", "round_robin", "--prometheus-port", str(free_port())]
    with process(argv, port, cpus) as relay:
        time.sleep(5)  # it probes its workers before it serves requests
        yield Running(name, f"http://127.0.0.1:{port}", (relay,))

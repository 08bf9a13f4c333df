"""What `hmas doctor` checks of each door: your engines, the console, TLS, your own load, containers, Kubernetes.

Nobody needs all doors: what is missing for one that was not asked for is a warning that says how to get it.
"""

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from hmas.mesh.doctor import TIMEOUT_S, Finding, Verdict, check_extra, check_http, check_port
from hmas.mesh.doctor_pairs import hand_overs
from hmas.mesh.state import NoMesh, read_state
from hmas.mesh.up import card_of
from hmas.runtime.certificates import CertificateFiles, CertificateRefused
from hmas.worker.adapters.scrape import dialect_of, read_page
from hmas.worker.discovery.file import EngineFileError, parse_engines
from hmas.worker.discovery.source import DnsSource, FileSource, source_of

MAX_PAGE_BYTES = 32 * 2**20
RENEW_S = 14 * 86_400.0
# What an engine of each dialect must be told, which no answer of its own shows.
FLAGS = {
    "vllm": "--max-num-seqs as in `hmas up --max-num-seqs`",
    "sglang": "--enable-metrics --enable-priority-scheduling",
}


def your_engines(engines: list[str], api_key: str = "") -> list[Finding]:
    """Checks the engines, or the source of engines, that `hmas up --engine` would be given."""
    if not engines:
        return [
            Finding(
                "engines", "warn", "none named, so that `hmas up` emulates two", "hmas doctor --engine http://HOST:8000"
            )
        ]
    return [finding for named in engines for finding in _engine_or_source(named, api_key)]


def _engine_or_source(named: str, api_key: str) -> list[Finding]:
    try:
        source = source_of(named)
    except ValueError as error:
        return [Finding(f"engine {named}", "fail", str(error), "correct --engine")]
    match source:
        case None:
            return _engine(named, api_key)
        case DnsSource(host, port):
            return [_name(host, port)]
        case FileSource(path):
            return _file(path, api_key)
    found = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    return [
        Finding("EndpointSlices", "ok", "this is a pod")
        if found
        else Finding("EndpointSlices", "fail", "this is not a pod", "use the chart deploy/helm/hmas, which runs in one")
    ]


def _engine(url: str, api_key: str) -> list[Finding]:
    health = check_http(f"engine {url}", url, "/health", "start the engine, or correct its URL")
    if health.verdict == "fail":
        return [health]
    try:
        card = card_of(url, api_key)
    except ValueError as error:
        return [health, Finding("its model", "fail", str(error), "give --engine-api-key-file if it asks for a key")]
    context = card.get("max_model_len")
    model = Finding("its model", "ok", f"{card['id']}" + (f", context of {context} tokens" if context else ""))
    return [health, model, _metrics(url)]


def _metrics(url: str) -> Finding:
    """Tells by the metrics which engine it is; without them H-MAS goes by what it sends there alone."""
    try:
        with urlopen(Request(f"{url.rstrip('/')}/metrics"), timeout=TIMEOUT_S) as reply:
            dialect = dialect_of(read_page(reply.read(MAX_PAGE_BYTES)))
    except (URLError, HTTPException, OSError, ValueError):
        dialect = None
    if dialect is None:
        return Finding(
            "its metrics",
            "warn",
            "neither vLLM's nor SGLang's",
            "SGLang needs --enable-metrics; without metrics H-MAS sees its own requests alone",
        )
    return Finding("its metrics", "ok", f"{dialect.name}'s; it should run with {FLAGS[dialect.name]}")


def _name(host: str, port: int) -> Finding:
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as error:
        return Finding(f"name {host}", "fail", str(error), "correct the name, or ask where it is known")
    return Finding(f"name {host}", "ok", f"{len(found)} addresses, each an engine at port {port}")


def _file(path: Path, api_key: str) -> list[Finding]:
    try:
        engines = parse_engines(path.read_bytes())
    except (OSError, EngineFileError) as error:
        return [Finding(f"file {path}", "fail", str(error), "write a YAML list of engines' URLs")]
    listed = Finding(f"file {path}", "ok", f"{len(engines)} engines")
    found = [finding for engine in engines for finding in _engine(engine.url, api_key)]
    return [listed, *found, *hand_overs(engines, api_key)]


def console_check(port: int, data_dir: Path) -> list[Finding]:
    try:
        url = read_state(data_dir).console_url
    except NoMesh:
        free = check_port("console", port, mesh_runs=False)
        taken = Finding(free.check, "warn", free.detail, "`hmas up` takes any free port, and says which")
        return [free if free.verdict == "ok" else taken]
    if not url:
        return [Finding("console", "warn", "the mesh runs without it", f"hmas console --data-dir {data_dir}")]
    return [check_http("console", url, "/", "read console.log under the data directory")]


def tls_check(cert: Path | None, key: Path | None) -> list[Finding]:
    """Checks the certificate of the API; without one, that the package is there which makes certificates."""
    if cert is None or key is None:
        if cert is None and key is None:
            return [check_extra("certificates", "cryptography", "give --tls-cert and --tls-key of your own")]
        return [Finding("certificate", "fail", "half given", "give both --tls-cert and --tls-key")]
    try:
        expires_s = CertificateFiles(cert=cert, key=key).check()
    except (CertificateRefused, OSError, ssl.SSLError) as error:
        return [Finding("certificate", "fail", str(error), "`hmas certificates FOLDER` makes one")]
    left = expires_s - time.time()
    detail = f"{cert} lasts for {left / 86_400:.0f} days"
    verdict: Verdict = "fail" if left <= 0 else "warn" if left < RENEW_S else "ok"
    return [Finding("certificate", verdict, detail, "" if verdict == "ok" else "renew it")]


def load_check(data: Path | None) -> list[Finding]:
    """Checks what `hmas compare`, `replay`, `calibrate` and `whatif` need: their packages, and traces of your own."""
    findings = [
        check_extra("load", "matplotlib", "do without `hmas compare`, `replay`, `load` and `calibrate`"),
        check_extra("sim", "onnxruntime", "do without `hmas whatif` and `hmas compare --simulated`"),
    ]
    folder = data or Path("data")
    traces = sorted(folder.glob("traces/*")) if folder.is_dir() else []
    if traces:
        return [*findings, Finding("traces", "ok", f"{len(traces)} in {folder / 'traces'}")]
    advice = "`hmas traces list` has public ones; `hmas compare --trace FILE` takes one of yours"
    return [*findings, Finding("traces", "warn", f"none in {folder / 'traces'}: a generated one is used", advice)]


Runs = Callable[[list[str]], tuple[int, str]]


def runs(command: list[str]) -> tuple[int, str]:
    """Runs a command for at most a few seconds; returns its exit code (127: not installed) and the last line that it
    says, or of its errors the first."""
    if shutil.which(command[0]) is None:
        return 127, "not found"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=3 * TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return 124, "does not answer"
    if done.returncode:
        return done.returncode, (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[0]
    return 0, (done.stdout.strip().splitlines() or [""])[-1]


def containers(run: Runs = runs) -> list[Finding]:
    return [
        _tool("docker", run(["docker", "version", "--format", "{{.Server.Version}}"]), "start Docker's daemon"),
        _tool("docker compose", run(["docker", "compose", "version"]), "install Docker's plug-in Compose"),
    ]


def kubernetes(run: Runs = runs) -> list[Finding]:
    reached = run(["kubectl", "version", "--request-timeout=3s", "-o", "yaml"])
    detail = "reaches the cluster" if reached[0] == 0 else reached[1]
    return [
        _tool("helm", run(["helm", "version", "--short"]), "install Helm 3.8 or later"),
        _tool("kubectl", (reached[0], detail), "name a cluster in ~/.kube/config"),
    ]


def _tool(name: str, answer: tuple[int, str], advice: str) -> Finding:
    code, line = answer
    if code == 0:
        return Finding(name, "ok", line)
    return Finding(name, "warn", line, f"install {name.split()[0]}" if code == 127 else advice)

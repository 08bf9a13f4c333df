"""Another user of the machine, who has no secret of the mesh, tries everything that `hmas up` opens: only the public
API answers. Needs root, to become that user, as in the continuous integration."""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user"),
]
NOBODY = pwd.getpwnam("nobody").pw_uid if os.name == "posix" else 0

# The interpreter may lie where another user cannot read it: what is needed is imported before the user changes.
BECOME = r"""
import asyncio, encodings.idna, encodings.latin_1, json, os, socket, sys, urllib.error, urllib.request
import grpc
given = json.load(sys.stdin)
os.chdir("/")
os.setgroups([])
os.setgid(given["uid"])
os.setuid(given["uid"])
assert os.getresuid() == (given["uid"],) * 3
"""
# What the stranger does with a list of ports and files. It prints a line of JSON for each attempt.
ATTEMPTS = r"""
def tell(what, **result):
    print(json.dumps({"what": what, **result}), flush=True)

def talk(port, sent, local=None):
    got, way = b"", socket.socket(socket.AF_UNIX if local else socket.AF_INET)
    way.settimeout(5)
    try:
        way.connect(local or ("127.0.0.1", port))
        for part in sent:
            way.sendall(part)
            try:
                got += way.recv(65536)
            except TimeoutError:
                pass
    except OSError as error:
        got += f"OSError {error}".encode()
    return got.decode("latin1")

def page(url, data=None):
    try:
        request = urllib.request.Request(url, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, reply.read().decode()[:2000]
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()[:2000]
    except OSError as error:
        return 0, str(error)

tell("uid", uid=os.getuid())
for path in given["files"]:
    for mode, name in ((os.R_OK, "read"), (os.W_OK, "write")):
        tell("file", path=path, how=name, can=os.access(path, mode))
    try:
        open(path).read()
        tell("file", path=path, how="open", can=True)
    except OSError:
        tell("file", path=path, how="open", can=False)
for user in given["users"]:
    ask = json.dumps({"user": user, "pass": "hmas", "verbose": True}).encode() if user else b'{"verbose": true}'
    tell("nats", got=talk(given["nats"], [b"", b"CONNECT " + ask + b"\r\nSUB hmas.v1.> 1\r\nPING\r\n", b"PING\r\n"]))
for hello in map(bytes.fromhex, given["hellos"]):
    for port in given["streams"]:
        tell("stream", got=talk(port, [hello, hello]))
    for name in given["sockets"]:
        tell("socket", got=talk(0, [hello, hello], "\0" + name))
for process, url in given["ops"].items():
    for path in ("/metrics", "/health", "/ready", "/docs", "/hmas/decisions"):
        status, text = page(url + path)
        tell("ops", process=process, path=path, status=status, text=text)
body = json.dumps({"model": "emulated", "prompt": "Hello", "max_tokens": 3}).encode()
status, text = page(given["api"] + "/v1/completions", body)
tell("api", status=status, text=text)
for pid in given["pids"]:
    for name in ("environ", "mem", "maps"):
        try:
            open(f"/proc/{pid}/{name}", "rb").read(1)
            tell("process", pid=pid, name=name, can=True)
        except OSError:
            tell("process", pid=pid, name=name, can=False)
    try:
        os.kill(pid, 0)
        tell("process", pid=pid, name="signal", can=True)
    except OSError:
        tell("process", pid=pid, name="signal", can=False)
"""

CALLS = r"""
async def main(given):
    for port in given["grpc"]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for method in given["methods"]:
                try:
                    await channel.unary_unary(method)(b"", timeout=10)
                    end = "OK"
                except grpc.aio.AioRpcError as error:
                    end = error.code().name
                print(json.dumps({"port": port, "method": method, "end": end}), flush=True)

asyncio.run(main(given))
"""


def as_nobody(code: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs code as the user `nobody` and returns what it tells, line by line."""
    done = subprocess.run(
        [sys.executable, "-c", BECOME + code],
        input=json.dumps({**given, "uid": NOBODY}),
        capture_output=True, text=True, timeout=110, env={"PATH": os.environ["PATH"]}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    # pytest's own folders are for their owner alone, which would hide what the mesh leaves open.
    folder = tmp_path_factory.mktemp("mesh")
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == 0 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    with start_mesh(folder / "data", "--console-port", "0") as running:
        yield running


def ports_of(mesh: Any, name: str) -> list[int]:
    process = psutil.Process(mesh.pid(name))
    return [one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]


def local_names() -> list[str]:
    """The abstract Unix sockets of any mesh on this machine."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sorted({line.split()[-1].lstrip("@") for line in lines if " @hmas" in line})


@pytest.fixture(scope="module")
def told(mesh: Any) -> list[dict[str, Any]]:
    from hmas.contracts.registry import WIRE_VERSION
    from hmas.wire.v1 import execution_pb2 as pb

    hellos = []
    for nonce in (b"n" * 16, b""):
        hello = pb.Hello(sender="stranger", incarnation="1", wire_version=WIRE_VERSION, nonce=nonce)
        frame = pb.GatewayFrame(hello=hello)
        frame.ops.add().synced.SetInParent()
        framed = frame.SerializeToString()
        hellos.append((len(framed).to_bytes(4) + framed).hex())
    state = mesh.state
    names = ["nats", "gateway", "worker-1", "worker-2", "perception", "prediction", "qos", "meta", "statera"]
    given = {
        "files": [str(path) for path in (mesh.directory, *sorted(mesh.directory.rglob("*")))],
        "users": ["", "hmas", "operator", "worker", "meta"],
        "nats": int(state["nats_url"].rpartition(":")[2]),
        "hellos": hellos,
        "streams": [port for name in ("worker-1", "worker-2") for port in ports_of(mesh, name)],
        "sockets": local_names(),
        "ops": {name: url for name, url in state["ops_urls"].items() if url != state["gateway_url"]},
        "api": state["gateway_url"],
        "pids": [mesh.process.pid, *(mesh.pid(name) for name in names)],
    }
    results = as_nobody(ATTEMPTS, given)
    assert results[0]["uid"] == NOBODY
    return results


def of(told: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    found = [each for each in told if each["what"] == what]
    assert found, f"nothing was tried of {what}"
    return found


def test_no_file_can_be_read_or_written(told: list[dict[str, Any]]) -> None:
    files = of(told, "file")
    assert [each for each in files if each["can"]] == []
    for needed in ("nats.conf", "secrets/mesh", "secrets/nats-operator", "logs/gateway.log", "mesh.json"):
        assert any(each["path"].endswith(needed) for each in files), needed


def test_nats_lets_nobody_in_by_any_name(told: list[dict[str, Any]]) -> None:
    for each in of(told, "nats"):
        assert "Authorization Violation" in each["got"]
        assert "PONG" not in each["got"]


def test_workers_hear_no_gateway_without_the_secret(told: list[dict[str, Any]], mesh: Any) -> None:
    for each in (*of(told, "stream"), *of(told, "socket")):
        assert "stranger" not in each["got"]
    assert all(each["got"] == "" or "OSError" in each["got"] for each in of(told, "socket"))
    log = (mesh.directory / "logs" / "worker-1.log").read_text()
    assert "gateway_refused" in log
    assert "gateway=stranger" not in log


def test_ops_ports_tell_health_alone(told: list[dict[str, Any]]) -> None:
    for each in of(told, "ops"):
        if each["path"] in ("/health", "/ready"):
            assert each["status"] == 200, each
        else:
            assert each["status"] in (401, 404), each
            assert "hmas_" not in each["text"]


def test_processes_are_out_of_reach(told: list[dict[str, Any]]) -> None:
    assert [each for each in of(told, "process") if each["can"]] == []


def test_the_public_api_answers(told: list[dict[str, Any]]) -> None:
    (answer,) = of(told, "api")
    assert answer["status"] == 200, answer


def test_grpc_serves_no_stranger(mesh: Any, tmp_path: Path) -> None:
    given = {
        "grpc": [port for name in ("perception", "prediction") for port in ports_of(mesh, name)],
        "methods": ["/hmas.wire.v1.Perception/Perceive", "/hmas.wire.v1.Prediction/Predict",
                    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"],
    }  # fmt: skip
    ends = as_nobody(CALLS, given)
    assert len(ends) >= 6
    assert {each["end"] for each in ends} <= {"UNAUTHENTICATED", "UNAVAILABLE"}, ends
    assert sum(each["end"] == "UNAUTHENTICATED" for each in ends) >= 6


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


async def test_the_console_shows_nothing_without_its_token(mesh: Any) -> None:
    url = mesh.state["console_url"]
    await eventually(lambda: answers(f"{url}/health"), 60)  # a mesh never waits for its console
    for path in ("/api/stream?page=now", "/api/requests/any"):
        assert httpx.get(f"{url}{path}").status_code == 401
    assert httpx.post(f"{url}/api/pin", json={"pool": "emulated", "topology": "edf"}).status_code == 401

"""The mesh with docker-compose.tls.yml: the API over TLS, services known by certificates, nothing in the clear."""

import ssl
from pathlib import Path

import httpx
import pytest

from tests.compose.docker import Stack, docker

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]
PLAIN = """
import asyncio, socket, sys
host, port = sys.argv[1], int(sys.argv[2])
way = socket.create_connection((host, port), timeout=5)
way.settimeout(5)
try:
    way.sendall(b"GET / HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n")
    got = way.recv(4096)
except OSError:
    got = b""
assert not got or got[0] == 21, got  # nothing, or an alert of TLS
print("refused")
"""
UNKNOWN = """
import socket, ssl, sys
context = ssl._create_unverified_context()
try:
    way = context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5))
    way.sendall(b"x" * 64)
    got = way.recv(4096)
    assert not got, got
except OSError:
    pass
print("refused")
"""


@pytest.fixture
def trusted(tls_stack: Stack, tmp_path: Path) -> ssl.SSLContext:
    (tmp_path / "ca.pem").write_text(docker("exec", tls_stack.container("gateway"), "cat", "/run/hmas/secrets/ca.pem"))
    return ssl.create_default_context(cafile=tmp_path / "ca.pem")


def test_the_api_answers_over_tls(tls_stack: Stack, trusted: ssl.SSLContext) -> None:
    url = tls_stack.url.replace("http:", "https:")
    ask = {"model": "emulated", "prompt": "Hello", "max_tokens": 20}
    with httpx.Client(verify=trusted, timeout=60) as client:
        answer = client.post(f"{url}/v1/completions", json=ask)
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 20
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{tls_stack.url}/health")


def test_workers_and_cognition_are_used_over_tls(tls_stack: Stack) -> None:
    log = tls_stack.compose("logs", "gateway")
    assert log.count("worker_stream_open") >= 2
    for fault in ("cognition_failed", "worker_refused", "nats_disconnected"):
        assert fault not in log


@pytest.mark.parametrize(
    ("service", "port"), [("nats", 4222), ("perception", 50051), ("prediction", 50051), ("worker-1", 50052)]
)
@pytest.mark.parametrize("code", [PLAIN, UNKNOWN], ids=["in the clear", "without a certificate"])
def test_no_port_of_the_mesh_speaks_otherwise(tls_stack: Stack, service: str, port: int, code: str) -> None:
    """Asked from a container that has no certificate in use for it: a process without the mesh's settings."""
    told = docker("exec", tls_stack.container("gateway"), "python", "-c", code, service, str(port))
    assert told.strip() == "refused"


def test_the_key_of_the_authority_is_in_no_service(tls_stack: Stack) -> None:
    for service in ("gateway", "worker-1", "nats", "qos"):
        found = docker("exec", tls_stack.container(service), "sh", "-c", "find / -name ca-key.pem 2>/dev/null || true")
        assert found.strip() == "", service


def test_the_operators_commands_work(tls_stack: Stack) -> None:
    assert "engine-2" in tls_stack.compose("run", "--rm", "-T", "hmas", "top", "--once", "3")

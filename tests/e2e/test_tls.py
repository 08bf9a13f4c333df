"""The API over TLS, as `hmas up` serves it: real clients, a certificate that is renewed, and certificates that are
refused."""

import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.certificates import Issuer, issuer

pytestmark = pytest.mark.e2e
RENEWED_WITHIN_S = 20.0


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return issuer(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def mesh(ours: Issuer, tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    files = ours.issue("api", "127.0.0.1")
    args = ("--tls-cert", str(files.cert), "--tls-key", str(files.key))
    with start_mesh(tmp_path_factory.mktemp("mesh"), *args) as running:
        yield running


def trusting(ours: Issuer) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ours.folder / "api.ca.pem")


def serial(mesh: Any) -> str:
    """The number of the certificate that the API shows, as OpenSSL sees it."""
    address = mesh.url.removeprefix("https://")
    shown = subprocess.run(
        ["openssl", "s_client", "-connect", address], input="", capture_output=True, text=True, timeout=20, check=False
    )
    told = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=shown.stdout, capture_output=True, text=True)
    return told.stdout.strip()


def test_a_client_that_trusts_the_ca_is_served_whole_and_streamed(mesh: Any, ours: Issuer) -> None:
    assert mesh.url.startswith("https://")
    with openai.DefaultHttpxClient(verify=trusting(ours), timeout=60) as http:
        client = openai.OpenAI(base_url=f"{mesh.url}/v1", api_key="none", http_client=http, max_retries=0)
        whole = client.completions.create(model="emulated", prompt="Hello", max_tokens=20)
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 20
        stream = client.completions.create(model="emulated", prompt="Hello", max_tokens=200, stream=True)
        chunks = [chunk.choices[0].text for chunk in stream if chunk.choices]
        assert len(chunks) > 20
        long = {"model": "emulated", "prompt": "word " * 200_000, "max_tokens": 2}
        assert http.post(f"{mesh.url}/v1/completions", json=long).status_code in (200, 400)


def test_a_client_that_does_not_is_not_and_plain_http_gets_nothing(mesh: Any) -> None:
    with pytest.raises(httpx.ConnectError, match=r"(?i)certificate verify failed"):
        httpx.get(f"{mesh.url}/health")
    with pytest.raises(httpx.TransportError):
        httpx.get(mesh.url.replace("https", "http") + "/health")


@pytest.mark.parametrize(("option", "works"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)])
def test_old_versions_of_tls_are_refused(mesh: Any, option: str, works: bool) -> None:
    address = mesh.url.removeprefix("https://")
    done = subprocess.run(
        ["openssl", "s_client", "-connect", address, option, "-cipher", "ALL:@SECLEVEL=0"],
        input="", capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert ("BEGIN CERTIFICATE" in done.stdout) == works, done.stderr


def test_a_renewed_certificate_is_shown_without_a_restart_and_a_wrong_one_is_not(mesh: Any, ours: Issuer) -> None:
    pid, before = mesh.pid("gateway"), serial(mesh)
    with httpx.Client(verify=trusting(ours), timeout=60, base_url=mesh.url) as open_before:
        assert open_before.get("/health").status_code == 200
        ours.issue("api", "127.0.0.1", days=-1)
        log = mesh.directory / "logs" / "gateway.log"
        wait(lambda: "certificate_refused" in log.read_text())
        assert "has expired" in log.read_text()
        assert serial(mesh) == before
        ours.issue("api", "127.0.0.1", days=5)
        wait(lambda: serial(mesh) != before)
        assert open_before.get("/health").status_code == 200
    assert httpx.get(f"{mesh.url}/health", verify=trusting(ours)).status_code == 200
    assert mesh.pid("gateway") == pid


def wait(condition: Any) -> None:
    deadline_s = time.monotonic() + RENEWED_WITHIN_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


@pytest.mark.parametrize("fault", ["expired", "foreign key", "half"])
def test_a_gateway_with_a_wrong_certificate_ends_with_one_clear_line(tmp_path: Path, fault: str) -> None:
    authority = issuer(tmp_path)
    good, old = authority.issue("api", "127.0.0.1"), authority.issue("old", days=-1)
    cert, key, reason = {
        "expired": (old.cert, old.key, "has expired"),
        "foreign key": (good.cert, old.key, "do not belong together"),
        "half": (good.cert, "", "HMAS_TLS_KEY_FILE"),
    }[fault]
    own = {"HMAS_TLS_CERT_FILE": str(cert), **({"HMAS_TLS_KEY_FILE": str(key)} if key else {})}
    done = subprocess.run(
        [sys.executable, "-m", "hmas.gateway"], env={**os.environ, **own, "HMAS_PORT": "0"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == os.EX_CONFIG
    assert reason in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr

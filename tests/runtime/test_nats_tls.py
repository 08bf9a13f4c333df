"""The bus and a real NATS server over mutual TLS."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
import structlog.testing

from hmas.runtime.bus import Bus
from hmas.runtime.certificates import CertificateFiles
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.permissions import USERS, authorization
from tests.certificates import Issuer, issuer
from tests.runtime.conftest import NatsProcess

SECRET = "a password of a test"


@pytest.fixture
def ours(tmp_path: Path) -> Issuer:
    return issuer(tmp_path / "ours")


@asynccontextmanager
async def serving(folder: Path, files: CertificateFiles) -> AsyncIterator[NatsProcess]:
    """A server with a certificate and the users of the mesh."""
    tls: dict[str, Any] = {"cert_file": str(files.cert), "key_file": str(files.key), "ca_file": str(files.ca)}
    tls |= {"verify": True, "handshake_first": True}
    users = authorization({user.name: SECRET for user in USERS})
    (folder / "nats.conf").write_text(json.dumps({"authorization": users, "tls": tls}))
    server = NatsProcess(folder / "js", "-c", str(folder / "nats.conf"))
    server.start()
    try:
        yield server
    finally:
        server.kill()


def settings(folder: Path, server: NatsProcess, files: CertificateFiles | None) -> RuntimeSettings:
    (folder / "password").write_text(SECRET)
    own: dict[str, Any] = {}
    if files is not None:
        own = {"mesh_ca_file": files.ca, "mesh_cert_file": files.cert, "mesh_key_file": files.key}
    return RuntimeSettings(
        nats_url=server.url, nats_user="gateway", nats_password_file=folder / "password", **own
    )  # fmt: skip


async def connects(bus: Bus, within_s: float) -> bool:
    task = asyncio.create_task(bus.run())
    try:
        await asyncio.wait_for(bus.wait_connected(), within_s)
    except TimeoutError:
        return False
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()
    return True


async def test_a_service_with_a_certificate_of_the_mesh_connects(ours: Issuer, tmp_path: Path) -> None:
    async with serving(tmp_path, ours.issue("nats", "127.0.0.1")) as server:
        assert await connects(Bus(settings(tmp_path, server, ours.issue("gateway")), "g"), 10)


@pytest.mark.parametrize("fault", ["none", "another CA", "another name"])
async def test_no_other_connects(ours: Issuer, tmp_path: Path, fault: str) -> None:
    name = "elsewhere.example" if fault == "another name" else "127.0.0.1"
    async with serving(tmp_path, ours.issue("nats", name)) as server:
        files = {
            "none": None,
            "another CA": issuer(tmp_path / "theirs").issue("gateway"),
            "another name": ours.issue("gateway"),
        }[fault]
        with structlog.testing.capture_logs() as logs:
            assert not await connects(Bus(settings(tmp_path, server, files), "g"), 2)
        told = [entry["reason"] for entry in logs if entry["event"] == "nats_refused"]
        assert len(told) <= 1
        if files is not None:
            assert re.search({"another CA": "(?i)self-signed|issuer", "another name": "not valid for"}[fault], told[0])


async def test_a_server_without_tls_gets_no_password(ours: Issuer, tmp_path: Path) -> None:
    """Someone on the way who says that TLS is not needed: nothing readable reaches him."""
    heard = bytearray()

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"auth_required":true}\r\n')
        heard.extend(await reader.read(4096))
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    fake = NatsProcess(tmp_path / "js")
    fake.url = f"nats://127.0.0.1:{port}"
    assert not await connects(Bus(settings(tmp_path, fake, ours.issue("gateway")), "g"), 2)
    server.close()
    assert heard
    assert SECRET.encode() not in heard


async def test_the_server_asks_for_a_certificate(ours: Issuer, tmp_path: Path) -> None:
    files = ours.issue("nats", "127.0.0.1")
    async with serving(tmp_path, files) as server:
        with pytest.raises((nats.errors.Error, OSError, asyncio.TimeoutError)):
            await nats.connect(server.url, user="gateway", password=SECRET, allow_reconnect=False, connect_timeout=2)

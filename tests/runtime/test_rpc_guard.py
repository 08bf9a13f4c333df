"""Calls of gRPC by strangers: refused before anything is read, and one line of log for many of them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog.testing
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hmas.runtime.extras import CannotStart
from hmas.runtime.rpc import RpcServer, open_channel
from hmas.runtime.security import OPEN, MeshSecurity
from hmas.wire.handshake import MeshSecret
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc
from tests.certificates import Issuer, issuer
from tests.conftest import PATIENCE_S

SECRET = b"a secret of the mesh, for tests"
OURS, THEIRS = MeshSecurity(MeshSecret(SECRET)), MeshSecurity(MeshSecret(b"t" * 32))
METHOD = "/hmas.wire.v1.Perception/Perceive"
MALFORMED = b"\xff\xff\xff"


class Perception(cognition_pb2_grpc.PerceptionServicer):
    """Counts the calls that reach it."""

    def __init__(self) -> None:
        self.calls = 0

    async def Perceive(self, request: pb.PerceiveBatch, context: Any) -> pb.PerceiveReply:
        self.calls += 1
        return pb.PerceiveReply()


class Serving:
    """A server with one service, and calls to it."""

    def __init__(self, security: MeshSecurity) -> None:
        self.service, self.rpc = Perception(), RpcServer(security)
        cognition_pb2_grpc.add_PerceptionServicer_to_server(self.service, self.rpc.server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        self.port = await self.rpc.start("127.0.0.1", 0, ["hmas.wire.v1.Perception"])

    async def call(self, security: MeshSecurity, data: bytes = b"", method: str = METHOD) -> grpc.StatusCode:
        """Returns how a call with these bytes ends."""
        async with open_channel(f"127.0.0.1:{self.port}", security) as channel:
            try:
                await channel.unary_unary(method)(data, timeout=PATIENCE_S, metadata=security.call_metadata())
            except grpc.aio.AioRpcError as error:
                self.details = error.details() or ""
                return error.code()
            return grpc.StatusCode.OK


@pytest.fixture
async def guarded() -> AsyncIterator[Serving]:
    serving = Serving(OURS)
    await serving.start()
    yield serving
    await serving.rpc.stop(0)


async def test_only_calls_with_the_token_of_the_mesh_are_served(guarded: Serving) -> None:
    assert await guarded.call(OURS) is grpc.StatusCode.OK
    with structlog.testing.capture_logs() as logs:
        for _ in range(20):
            for stranger in (OPEN, THEIRS):
                assert await guarded.call(stranger) is grpc.StatusCode.UNAUTHENTICATED
                assert "HMAS_MESH_SECRET_FILE" in guarded.details
    assert guarded.service.calls == 1
    assert [entry["event"] for entry in logs] == ["rpc_refused"]


async def test_a_stranger_learns_nothing_but_health(guarded: Serving) -> None:
    for method in ("/hmas.wire.v1.Perception/None", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"):
        assert await guarded.call(OPEN, method=method) is grpc.StatusCode.UNAUTHENTICATED
    async with open_channel(f"127.0.0.1:{guarded.port}") as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


async def test_the_body_of_a_stranger_is_not_read(guarded: Serving) -> None:
    assert await guarded.call(OPEN, bytes(30 * 2**20)) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_malformed_request_is_an_answer_and_one_line(
    guarded: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as logs, caplog.at_level(logging.DEBUG):
        for _ in range(50):
            assert await guarded.call(OURS, MALFORMED) is grpc.StatusCode.INVALID_ARGUMENT
        assert await guarded.call(OPEN, MALFORMED, "/grpc.health.v1.Health/Check") is grpc.StatusCode.INVALID_ARGUMENT
    assert guarded.service.calls == 0
    assert [entry["event"] for entry in logs] == ["rpc_malformed"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert await guarded.call(OURS) is grpc.StatusCode.OK


async def test_no_port_is_opened_to_the_network_without_secret_or_certificate(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="HMAS_GRPC_HOST=0"):
        await RpcServer().start("0.0.0.0", 0, [])
    for security in (OURS, issuer(tmp_path).security("perception")):
        rpc = RpcServer(security)
        await rpc.start("0.0.0.0", 0, [])
        await rpc.stop(0)


@pytest.fixture
def ours(tmp_path: Path) -> Issuer:
    return issuer(tmp_path / "ours")


async def test_with_certificates_both_sides_are_known(ours: Issuer, tmp_path: Path) -> None:
    serving = Serving(ours.security("perception", "127.0.0.1", secret=SECRET))
    await serving.start()
    assert await serving.call(ours.security("gateway", secret=SECRET)) is grpc.StatusCode.OK
    assert await serving.call(ours.security("gateway")) is grpc.StatusCode.UNAUTHENTICATED
    theirs = issuer(tmp_path / "theirs").security("gateway", secret=SECRET)
    for stranger in (OURS, theirs):
        assert await serving.call(stranger) is grpc.StatusCode.UNAVAILABLE
    await serving.rpc.stop(0)
    elsewhere = Serving(ours.security("perception", "perception.example", secret=SECRET))
    await elsewhere.start()
    assert await elsewhere.call(ours.security("gateway", secret=SECRET)) is grpc.StatusCode.UNAVAILABLE
    await elsewhere.rpc.stop(0)


async def test_a_renewed_certificate_of_the_server_is_used_at_once(ours: Issuer) -> None:
    """Its first one is for another name, so that a client can tell them apart."""
    serving = Serving(ours.security("perception", "elsewhere.example"))
    await serving.start()
    client = ours.security("gateway")
    assert await serving.call(client) is grpc.StatusCode.UNAVAILABLE
    ours.issue("perception", "127.0.0.1")
    async with asyncio.timeout(PATIENCE_S):
        while await serving.call(client) is not grpc.StatusCode.OK:
            await asyncio.sleep(0.05)
    await serving.rpc.stop(0)


async def test_connections_that_speak_no_grpc_are_few_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmas.runtime.rpc.HANDSHAKE_S", 0.5)
    monkeypatch.setattr("hmas.runtime.rpc.MAX_CONNECTIONS", 5)
    serving = Serving(OURS)
    await serving.start()
    held = [await asyncio.open_connection("127.0.0.1", serving.port) for _ in range(20)]
    async with asyncio.timeout(PATIENCE_S):
        for reader, writer in held:
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
    assert await serving.call(OURS) == grpc.StatusCode.OK
    await serving.rpc.stop(0)


async def test_nobody_watches_health_for_ever() -> None:
    serving = Serving(OURS)
    await serving.start()
    async with open_channel(f"127.0.0.1:{serving.port}") as channel:
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        async with asyncio.timeout(PATIENCE_S):
            assert await watching.code() == grpc.StatusCode.UNIMPLEMENTED
    await serving.rpc.stop(0)

"""The endpoint picker as a proxy speaks with it, message by message, before a real shell and agent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from hmas.contracts.execution import Ended, Stop, Submit, Withdraw
from hmas.contracts.gateway import GatewayDraining
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.http.bodies import BodyBounds, BodyDesk
from hmas.gateway.picker.request import PickedRequest
from hmas.gateway.picker.server import SERVICE, PickerServer
from hmas.gateway.picker.strangers import Strangers
from hmas.gateway.reception import Reception
from hmas.gateway.tenants.store import TenantStore
from hmas.laws.scoring import verdict
from hmas.runtime.logs import LogRateLimit
from hmas.wire.v1 import ext_proc_pb2 as pb
from tests.certificates import issuer
from tests.conftest import PATIENCE_S
from tests.gateway.gateway_harness import CHAT, PATH, Gateway, gateway
from tests.gateway.gateway_script import heartbeat

MODES = pb.ProcessingMode
BODY = orjson.dumps({**CHAT, "stream": True, "priority": 3})


@dataclass
class Stream:
    """The proxy's side of one stream. A message while another is being sent is an error, as in gRPC."""

    g: Gateway
    said: list[pb.ProcessingResponse] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._sending = False
        self.aborted: grpc.StatusCode | None = None

    async def read(self) -> Any:
        return await self._messages.get()

    async def write(self, message: pb.ProcessingResponse) -> None:
        assert not self._sending, "one message at a time"
        self._sending = True
        await asyncio.sleep(0.001)
        self._sending = False
        self.said.append(message)

    async def abort(self, code: grpc.StatusCode, _: str) -> None:
        self.aborted = code

    def tell(self, **what: Any) -> None:
        self._messages.put_nowait(pb.ProcessingRequest(**what))

    def request(
        self, mode: int = MODES.BUFFERED, answers: int = MODES.NONE, headers: dict[str, str] | None = None
    ) -> None:
        named = {":method": "POST", ":path": PATH, **(headers or {})}
        self.tell(
            request_headers=pb.HttpHeaders(headers=_map(named)),
            protocol_config=pb.ProtocolConfiguration(request_body_mode=mode, response_body_mode=answers),  # type: ignore[arg-type]
        )

    def body(self, data: bytes = BODY, *, end: bool = True) -> None:
        self.tell(request_body=pb.HttpBody(body=data, end_of_stream=end))

    def answer(self, status: int = 200, *, reached: bool = True) -> None:
        headers = {":status": str(status), **({"x-envoy-upstream-service-time": "1"} if reached else {})}
        self.tell(response_headers=pb.HttpHeaders(headers=_map(headers)))

    async def end(self) -> None:
        self._messages.put_nowait(grpc.aio.EOF)
        assert self.task is not None
        await self.task

    async def says(self, number: int) -> list[pb.ProcessingResponse]:
        await self.g.until(lambda: len(self.said) >= number)
        return self.said

    async def refusal(self) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Waits for an error in place of an answer, and returns its status, body and headers."""
        await self.g.until(lambda: bool(self.said) and self.said[-1].HasField("immediate_response"))
        told = self.said[-1].immediate_response
        headers = {each.header.key: each.header.raw_value.decode() for each in told.headers.set_headers}
        return told.status.code, orjson.loads(told.body)["error"], headers


def _map(headers: dict[str, str]) -> pb.HeaderMap:
    return pb.HeaderMap(headers=[pb.HeaderValue(key=k, raw_value=v.encode()) for k, v in headers.items()])


@asynccontextmanager
async def stream(g: Gateway, strangers: Strangers | None = None, **bounds: Any) -> AsyncIterator[Stream]:
    directory = ModelDirectory(max_pools=8)
    directory.hear(heartbeat())
    reception = Reception(g.shell, TenantStore(None), directory, replay_field=False)
    found, size = Stream(g), BodyBounds(**{"max_bytes": 100_000, **bounds})
    picked = PickedRequest(found, g.shell, reception, size, BodyDesk(size), strangers or Strangers())
    found.task = asyncio.create_task(picked.serve())
    yield found
    if not found.task.done():
        await found.end()


def headers_of(mutation: pb.HeaderMutation) -> dict[str, str]:
    return {each.header.key: each.header.raw_value.decode() for each in mutation.set_headers}


async def test_a_grant_becomes_the_engines_address_and_the_body_that_it_gets() -> None:
    async with gateway() as g, stream(g) as s:
        g.workers.changes = {"priority": 7}
        s.request(headers={"authorization": "Bearer secret", "x-request-id": "mine"})
        s.body()
        first, second = await s.says(2)
        assert first.HasField("request_headers")
        assert first.mode_override.response_body_mode == MODES.NONE
        assert first.mode_override.request_body_mode == MODES.BUFFERED
        told, address = second.request_body.response, g.engine.url.removeprefix("http://")
        assert headers_of(told.header_mutation)["x-gateway-destination-endpoint"] == address
        assert set(told.header_mutation.remove_headers) == {"authorization", "x-api-key"}
        metadata = second.dynamic_metadata.fields["envoy.lb"].struct_value
        assert metadata.fields["x-gateway-destination-endpoint"].string_value == address
        sent = orjson.loads(told.body_mutation.body)
        assert sent == {**CHAT, "stream": True, "priority": 7}  # without usage, which nobody could leave out
        assert headers_of(told.header_mutation)["content-length"] == str(len(told.body_mutation.body))
        s.answer()
        third = (await s.says(3))[2]
        assert headers_of(third.response_headers.response.header_mutation)["x-request-id"] == "mine"
        assert not g.workers.of(Ended)
        await s.end()
        (ended,) = g.workers.of(Ended)
        assert (ended.outcome, ended.output_tokens) == (Outcome.FINISHED, 0)
        assert not g.engine.requests  # the gateway itself sent nothing


@pytest.mark.parametrize(
    ("body", "headers", "ok"),
    [
        (BODY, {"x-slo-ttft-ms": "60000"}, True),
        (BODY, {"x-slo-ttft-ms": "0.001"}, False),  # the wait alone is longer
        (orjson.dumps(CHAT), {"x-slo-ttft-ms": "60000"}, True),
        (BODY, {"x-slo-ttlt-ms": "60000"}, True),
        (BODY, {"x-slo-ttlt-ms": "0.001"}, False),
    ],
)
async def test_an_answer_that_nobody_counted_is_judged_by_its_wait_and_its_end(
    body: bytes, headers: dict[str, str], ok: bool
) -> None:
    async with gateway(grants=False) as g:
        async with stream(g) as s:
            s.request(headers=headers)
            s.body(body)
            await g.until(lambda: bool(g.workers.submits))
            g.workers.grant(*g.workers.submits[0])
            await s.says(2)
            s.answer()
            await s.says(3)
        await g.until(lambda: any(t.settled for t in g.published))
        (settled,) = (each for t in g.published for each in t.settled)
        assert (settled.outcome, settled.output_tokens) == (Outcome.FINISHED, 0)
        assert (verdict(settled).judged, verdict(settled).ok) == (True, ok)


async def test_its_health_follows_the_gateways_and_it_speaks_tls(tmp_path: Path) -> None:
    ready, files = [False], issuer(tmp_path).issue("127.0.0.1")
    async with gateway() as g:
        reception = Reception(g.shell, TenantStore(None), ModelDirectory(max_pools=8), replay_field=False)
        server = PickerServer(g.shell, reception, lambda: ready[0], bounds=BodyBounds(), most=8, certificate=files)
        port = await server.start("127.0.0.1", 0)
        watch = asyncio.create_task(server.watch())
        assert files.ca is not None
        credentials = grpc.ssl_channel_credentials(files.ca.read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            async def states() -> list[int]:
                named = [health_pb2.HealthCheckRequest(service=name) for name in ("liveness", "readiness", SERVICE)]
                return [(await stub.Check(each)).status for each in named]

            up, down = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
            assert await states() == [up, down, down]
            ready[0] = True
            async with asyncio.timeout(PATIENCE_S):
                while await states() != [up, up, up]:
                    await asyncio.sleep(0.05)
            await server.retire()
            assert await states() == [down, down, down]
        watch.cancel()
        await server.stop()


async def test_parts_of_bodies_and_their_second_end() -> None:
    async with gateway() as g, stream(g) as s:
        s.request(MODES.FULL_DUPLEX_STREAMED, MODES.FULL_DUPLEX_STREAMED)
        whole = orjson.dumps({**CHAT, "user": "u" * 90_000})
        s.body(whole[:50_000], end=False)
        s.body(whole[50_000:])
        s.body(b"")  # Envoy ends long bodies twice
        head, *parts = await s.says(3)
        assert "x-gateway-destination-endpoint" in headers_of(head.request_headers.response.header_mutation)
        bodies = [part.request_body.response.body_mutation.streamed_response for part in parts]
        assert [body.end_of_stream for body in bodies] == [False, True]
        assert orjson.loads(b"".join(body.body for body in bodies))["user"] == "u" * 90_000
        s.answer()
        s.tell(response_body=pb.HttpBody(body=b"data: x", end_of_stream=False))
        s.tell(response_body=pb.HttpBody(body=b"", end_of_stream=True))
        *_, first, last = await s.says(6)
        passed = [each.response_body.response.body_mutation.streamed_response for each in (first, last)]
        assert [(each.body, each.end_of_stream) for each in passed] == [(b"data: x", False), (b"", True)]
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.FINISHED]
        assert len(s.said) == 6
        assert len(g.workers.of(Submit)) == 1


async def test_a_body_that_ends_with_trailers() -> None:
    async with gateway() as g, stream(g) as s:
        s.request(MODES.FULL_DUPLEX_STREAMED)
        s.body(end=False)
        s.tell(request_trailers=pb.HttpTrailers())
        _, part, last = await s.says(3)
        assert not part.request_body.response.body_mutation.streamed_response.end_of_stream
        assert last.HasField("request_trailers")


@pytest.mark.parametrize(
    ("status", "reached", "outcome", "shown"),
    [
        (404, True, Outcome.ENGINE_REFUSED, None),
        (500, True, Outcome.ENGINE_ERROR, 502),
        (429, True, Outcome.ENGINE_ERROR, 502),
        (503, False, Outcome.ENGINE_ERROR, 502),
    ],
)
async def test_what_an_engine_answers_instead(status: int, reached: bool, outcome: Outcome, shown: int | None) -> None:
    async with gateway() as g, stream(g) as s:
        s.request()
        s.body()
        await s.says(2)
        s.answer(status, reached=reached)
        last = (await s.says(3))[2]
        (ended,) = g.workers.of(Ended)
        assert (ended.outcome, ended.retryable, ended.unreached) == (outcome, False, not reached)
        assert last.immediate_response.status.code == (shown or 0)
        assert last.HasField("response_headers") is (shown is None)


async def test_a_client_that_leaves_while_it_waits() -> None:
    async with gateway(grants=False) as g, stream(g) as s:
        s.request()
        s.body()
        await g.until(lambda: bool(g.workers.of(Submit)))
        await s.end()
        assert len(g.workers.of(Withdraw)) == 1
        assert g.shell.live == 0
        g.workers.grant(*g.workers.submits[0])
        assert len(s.said) == 1


async def test_a_stream_that_is_cancelled_is_a_client_that_left() -> None:
    async with gateway() as g, stream(g) as s:
        s.request()
        s.body()
        await s.says(2)
        assert s.task is not None
        s.task.cancel()
        await g.until(lambda: bool(g.workers.of(Ended)))
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.CANCELLED]


async def test_refusals() -> None:
    async with gateway() as g:
        cases: list[tuple[dict[str, str], bytes, int, str]] = [
            ({":path": "/v1/other"}, BODY, 404, "unknown_path"),
            ({":method": "GET"}, b"", 405, "invalid_request"),
            ({}, b"{", 400, "invalid_request"),
            ({}, orjson.dumps({**CHAT, "model": "other"}), 404, "unknown_model"),
            ({"content-length": "100001"}, b"", 413, "body_too_large"),
            ({"x-slo-ttft-ms": "-1"}, BODY, 400, "invalid_request"),
        ]
        for headers, data, status, reason in cases:
            async with stream(g) as s:
                s.request(headers=headers)
                s.body(data)
                code, error, sent = await s.refusal()
                assert (code, error["reason"], sent["x-hmas-reason"]) == (status, reason, reason)
                assert sent["x-request-id"]
                assert sent.get("allow") == ("POST" if status == 405 else None)
        assert g.shell.live == 0


async def test_no_worker_is_told_with_a_time_to_come_back() -> None:
    async with gateway(workers=()) as g, stream(g) as s:
        g.host.post(GatewayDraining())
        s.request()
        s.body()
        code, error, headers = await s.refusal()
        assert (code, error["reason"]) == (503, "draining")
        assert int(headers["retry-after"]) >= 1
        assert "connection" not in headers  # it is the proxy's


async def test_a_body_that_does_not_come_in_time() -> None:
    async with gateway() as g, stream(g, timeout_s=0.01) as s:
        s.request()
        code, error, _ = await s.refusal()
        assert (code, error["reason"]) == (408, "client_too_slow")


async def test_a_mode_without_whole_bodies_is_refused_in_words() -> None:
    async with gateway() as g, stream(g) as s:
        s.request(MODES.STREAMED)
        code, error, _ = await s.refusal()
        assert code == 500
        assert "request_body_mode" in error["message"]


async def test_an_engine_that_a_proxy_cannot_be_told_of() -> None:
    async with gateway() as g, stream(g) as s:
        g.shell.on_heartbeat(
            heartbeat(engines=(replace(heartbeat().engines[0], endpoint="http://localhost:1/prefix"),))
        )
        s.request()
        s.body()
        code, error, _ = await s.refusal()
        assert (code, error["reason"]) == (503, "no_engine")
        assert "localhost" in error["message"]


async def test_several_answers_are_one_request() -> None:
    async with gateway() as g, stream(g) as s:
        s.request()
        s.body(orjson.dumps({**CHAT, "n": 3}))
        await s.says(2)
        assert orjson.loads(s.said[1].request_body.response.body_mutation.body)["n"] == 3
        assert len(g.workers.of(Submit)) == 1


async def test_a_worker_takes_nothing_back_that_a_proxy_has() -> None:
    async with gateway() as g, stream(g) as s:
        s.request()
        s.body()
        await s.says(2)
        (submit,) = g.workers.of(Submit)
        g.workers.say("w1", Stop(submit.request.id, 1, "the engine went down"))
        assert not g.workers.of(Ended)
        s.answer()
        await s.says(3)
        await s.end()
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.FINISHED]


async def test_a_request_that_takes_too_long_is_broken_off() -> None:
    async with gateway(agent=GatewayConfig(gateway="g", request_timeout_s=0.2)) as g, stream(g) as s:
        s.request()
        s.body()
        await s.says(2)
        s.answer()
        await s.says(3)
        code, error, _ = await s.refusal()
        assert (code, error["reason"]) == (504, "timed_out")


KEYS = "tenants:\n  alice:\n    keys: [{id: a, sha256: %s}]\n"
KEY = "a key of alice's, for tests"


@asynccontextmanager
async def picking(g: Gateway, strangers: Strangers, tenants: TenantStore) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a real server of this gateway."""
    directory = ModelDirectory(max_pools=8)
    directory.hear(heartbeat())
    reception = Reception(g.shell, tenants, directory, replay_field=False)
    server = PickerServer(g.shell, reception, lambda: True, bounds=BodyBounds(), most=1000, strangers=strangers)
    port = await server.start("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop()


def opened(channel: grpc.aio.Channel) -> Any:
    return channel.stream_stream(
        f"/{SERVICE}/Process", request_serializer=lambda message: message,
        response_deserializer=pb.ProcessingResponse.FromString,
    )()  # fmt: skip


def begun(key: str = KEY, path: str = PATH) -> bytes:
    named = {":method": "POST", ":path": path, "authorization": f"Bearer {key}"}
    modes = pb.ProtocolConfiguration(request_body_mode=MODES.BUFFERED, response_body_mode=MODES.NONE)
    headers = pb.HttpHeaders(headers=_map(named))
    return pb.ProcessingRequest(request_headers=headers, protocol_config=modes).SerializeToString()


async def asked(channel: grpc.aio.Channel) -> str:
    """Where the engine is that a good request goes to."""
    stream = opened(channel)
    await stream.write(begun())
    await stream.read()
    await stream.write(
        pb.ProcessingRequest(request_body=pb.HttpBody(body=BODY, end_of_stream=True)).SerializeToString()
    )
    told = (await stream.read()).request_body.response
    stream.cancel()
    return headers_of(told.header_mutation)["x-gateway-destination-endpoint"]


async def ended(stream: Any) -> grpc.StatusCode:
    """How a stream ends, whatever comes before."""
    with suppress(grpc.aio.AioRpcError):
        while await stream.read() is not grpc.aio.EOF:
            pass
    code: grpc.StatusCode = await stream.code()
    return code


@pytest.fixture
def tenants(tmp_path: Path) -> TenantStore:
    (tmp_path / "tenants.yaml").write_text(KEYS % sha256(KEY.encode()).hexdigest())
    return TenantStore(tmp_path / "tenants.yaml")


@pytest.mark.parametrize("sent", [[], [begun("wrong")], [b"\xff\xff\xff"], [begun(path="/else")]])
async def test_streams_without_a_key_are_few_and_end_and_a_good_one_is_answered(
    tenants: TenantStore, sent: list[bytes]
) -> None:
    strangers = Strangers(most=20, within_s=1.0)
    async with gateway() as g, picking(g, strangers, tenants) as channel:
        held = [opened(channel) for _ in range(100)]
        for each in held:
            for data in sent:
                await each.write(data)
        assert await asked(channel) == g.engine.url.removeprefix("http://")
        assert len(strangers) <= 20
        async with asyncio.timeout(PATIENCE_S):
            ends = {await ended(each) for each in held}
        late = {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert ends - late == ({grpc.StatusCode.OK} if sent else set())
        await g.until(lambda: len(strangers) == 0)
        assert await asked(channel) == g.engine.url.removeprefix("http://")


async def test_nobody_may_watch_its_health(tenants: TenantStore) -> None:
    async with gateway() as g, picking(g, Strangers(), tenants) as channel:
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        async with asyncio.timeout(PATIENCE_S):
            assert await watching.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_bytes_that_are_no_message_are_one_line_of_log(
    tenants: TenantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hmas.gateway.picker.request.told", LogRateLimit())
    async with gateway() as g, picking(g, Strangers(), tenants) as channel:
        with capture_logs() as logs:
            for late in (False, True, False, True):
                stream = opened(channel)
                if late:
                    await stream.write(begun())
                    await stream.read()
                await stream.write(b"\xff\xff\xff")
                assert (await stream.read()).immediate_response.status.code == 400
                assert await stream.read() is grpc.aio.EOF
        assert [each["event"] for each in logs if each["log_level"] in ("warning", "error")] == ["picker_malformed"]


@pytest.mark.parametrize("status", ["9" * 30, "9" * 5_000, "99", "600", "-20", "\u0662\u0660\u0660", "", "20x"])
async def test_a_status_that_is_none_counts_as_the_engines_failure(status: str) -> None:
    async with gateway() as g, stream(g) as s:
        s.request()
        s.body()
        await s.says(2)
        with capture_logs() as logs:
            s.tell(
                response_headers=pb.HttpHeaders(headers=_map({":status": status, "x-envoy-upstream-service-time": "1"}))
            )
            await g.until(lambda: bool(g.workers.of(Ended)))
        assert [each for each in logs if each["log_level"] == "error"] == []
        (ended,) = g.workers.of(Ended)
        assert ended.outcome is Outcome.ENGINE_ERROR

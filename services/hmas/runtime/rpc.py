"""gRPC servers, with health checks and reflection, and gRPC channels; both are set up to detect dead peers soon, and
recognise the services of their mesh."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hmas.runtime.logs import LogRateLimit
from hmas.runtime.open_files import open_files
from hmas.runtime.security import OPEN, MeshSecurity, MeshTls
from hmas.wire.codec import MALFORMED
from hmas.wire.handshake import ADVICE

MAX_MESSAGE_BYTES = 32 * 2**20  # more than a frame with the largest request body that a gateway accepts

MAX_CALLS = 1024  # at a time; more are refused
MAX_CONNECTIONS = 4096  # at most a quarter of the open files
HANDSHAKE_S = 3.0  # time until a connection speaks gRPC, after TLS where there is
IDLE_S = 60.0  # how long a connection without calls is kept
_HEALTH = f"/{health_pb2.DESCRIPTOR.services_by_name['Health'].full_name}/"  # orchestrators ask without a secret

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


def listening_options() -> list[tuple[str, int]]:
    """Returns the options of every server: bounds of its connections, which gRPC otherwise takes without end and gives
    two minutes to begin. The headers of a call are bounded by gRPC itself, to 16 KiB."""
    return [
        ("grpc.max_allowed_incoming_connections", min(MAX_CONNECTIONS, open_files() // 4)),
        ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_S * 1000)),
        ("grpc.max_connection_idle_ms", round(IDLE_S * 1000)),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]


class AskedHealth(health.aio.HealthServicer):  # type: ignore[misc]
    """Answers those who ask for a service's health. Nobody may watch it: that is a stream without end, which needs no
    secret and takes the place of a call."""

    async def Watch(self, request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "ask with Check, as often as you need")


@dataclass(frozen=True, slots=True)
class _Malformed:
    """A request that is not the message that its method takes."""

    reason: str


class _Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without the mesh's token, before anything of them is read, and requests that cannot be decoded. One
    is logged in one line, and many of them in few."""

    def __init__(self, security: MeshSecurity) -> None:
        self._token = b"" if security.secret is None else f"Bearer {security.secret.token}".encode()
        self._sparingly = LogRateLimit()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        if self._token and not details.method.startswith(_HEALTH) and not self._admits(details):
            return grpc.stream_stream_rpc_method_handler(self._refusal(details.method))
        handler = await continuation(details)
        if handler is None or handler.request_streaming or handler.response_streaming:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            self._checked(details.method, handler.unary_unary), _tolerant(handler.request_deserializer),
            handler.response_serializer,
        )  # fmt: skip

    def _admits(self, details: grpc.HandlerCallDetails) -> bool:
        given = next((value for name, value in details.invocation_metadata or () if name == "authorization"), "")
        return hmac.compare_digest(given if isinstance(given, bytes) else given.encode(), self._token)

    def _refusal(self, method: str) -> Callable[[Any, Any], Awaitable[None]]:
        async def refuse(_: Any, context: Any) -> None:
            reason = "the call has no token of this mesh"
            self._sparingly.warn("rpc_refused", method=method, peer=context.peer(), reason=reason)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"{reason}: {ADVICE}")

        return refuse

    def _checked(self, method: str, serve: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Any]:
        async def checked(request: Any, context: Any) -> Any:
            if isinstance(request, _Malformed):
                MALFORMED.labels(method.rpartition("/")[2]).inc()  # one of the few methods there are
                self._sparingly.warn("rpc_malformed", method=method, peer=context.peer(), reason=request.reason)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a valid request: {request.reason}")
            return await serve(request, context)

        return checked


def _tolerant(decode: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """Returns a decoder that does not raise, because gRPC would log a traceback for each request at which it does."""

    def tolerant(data: bytes) -> Any:
        try:
            return data if decode is None else decode(data)
        except DecodeError as error:
            return _Malformed(str(error)[:200])

    return tolerant


class RpcServer:
    """A grpc.aio server. Servicers must be added to `server` before `start`."""

    def __init__(self, security: MeshSecurity = OPEN) -> None:
        options = [*_OPTIONS, *listening_options()]
        self._security = security
        self.server = grpc.aio.server(
            options=options, interceptors=[_Guard(security)], maximum_concurrent_rpcs=MAX_CALLS
        )
        self._health = AskedHealth()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)

    async def start(self, host: str, port: int, services: Sequence[str]) -> int:
        """Begins to serve at `host` and `port` and returns the port. `services` are the full names of the added
        services. Raises RuntimeError if the port is taken, and CannotStart if others than this machine's processes
        could reach it and nothing would tell them from the mesh's."""
        self._security.check_host("HMAS_GRPC_HOST", host)
        reflection.enable_server_reflection(
            [*services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME],
            self.server,
        )
        address, tls = f"{host}:{port}", self._security.tls
        if tls is None:
            bound = self.server.add_insecure_port(address)
        else:
            bound = self.server.add_secure_port(address, _server_credentials(tls))
        await self.server.start()
        for name in ("", *services):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return int(bound)

    async def stop(self, grace_s: float) -> None:
        """Reports NOT_SERVING, so that load balancers choose other servers, then ends: open calls may take `grace_s`
        seconds."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace_s)


def _server_credentials(tls: MeshTls) -> grpc.ServerCredentials:
    """Returns credentials that follow the files of the certificate."""

    def configuration() -> grpc.ServerCertificateConfiguration:
        ca, key, cert = tls.read()
        return grpc.ssl_server_certificate_configuration([(key, cert)], ca)

    return grpc.dynamic_ssl_server_credentials(configuration(), configuration, True)


def open_channel(address: str, security: MeshSecurity = OPEN) -> grpc.aio.Channel:
    """Returns a gRPC channel to `address` (host:port), which reconnects within about a second. It is encrypted if
    `security` has a certificate; `security.call_metadata()` belongs to each call."""
    options = [
        *_OPTIONS,
        # Otherwise a new channel to an address that failed inherits the back-off of the channel before.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]
    if security.tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    ca, key, cert = security.tls.read()
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert), options=options)

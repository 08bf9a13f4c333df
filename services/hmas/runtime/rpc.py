"""gRPC servers, with health checks and reflection, and gRPC channels; both are set up to detect dead peers soon."""

from collections.abc import Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

MAX_MESSAGE_BYTES = 32 * 2**20  # more than a frame with the largest request body that a gateway accepts

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


class RpcServer:
    """A grpc.aio server. Servicers must be added to `server` before `start`."""

    def __init__(self) -> None:
        options = [*_OPTIONS, ("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 5_000)]
        self.server = grpc.aio.server(options=options)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)

    async def start(self, host: str, port: int, services: Sequence[str]) -> int:
        """Begins to serve at `host` and `port` and returns the port. `services` are the full names of the added
        services. Raises RuntimeError if the port is taken."""
        reflection.enable_server_reflection(
            [*services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME],
            self.server,
        )
        bound = self.server.add_insecure_port(f"{host}:{port}")
        await self.server.start()
        for name in ("", *services):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return int(bound)

    async def stop(self, grace_s: float) -> None:
        """Reports NOT_SERVING, so that load balancers choose other servers, then ends: open calls may take `grace_s`
        seconds."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace_s)


def open_channel(address: str) -> grpc.aio.Channel:
    """Returns a gRPC channel to `address` (host:port) without encryption, which reconnects within about a second."""
    return grpc.aio.insecure_channel(
        address,
        options=[
            *_OPTIONS,
            # Otherwise a new channel to an address that failed inherits the back-off of the channel before.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1_000),
        ],
    )

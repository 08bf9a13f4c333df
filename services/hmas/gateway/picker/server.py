"""The gRPC server that Envoy asks, and its health as the endpoint picker protocol names it."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hmas.gateway.http.bodies import BodyBounds, BodyDesk
from hmas.gateway.picker.request import PickedRequest
from hmas.gateway.picker.strangers import Strangers
from hmas.gateway.reception import Reception
from hmas.gateway.shell import GatewayShell
from hmas.runtime.certificates import CertificateFiles
from hmas.runtime.rpc import AskedHealth, listening_options
from hmas.wire.v1 import ext_proc_pb2, ext_proc_pb2_grpc

SERVICE = ext_proc_pb2.DESCRIPTOR.services_by_name["ExternalProcessor"].full_name
HEALTH_S = 0.5
_ALIVE, _READY = ("", "liveness"), ("readiness", SERVICE)
_MESSAGE_BYTES = 2**20  # more than Envoy puts into one


class _Processor(ext_proc_pb2_grpc.ExternalProcessorServicer):
    def __init__(self, shell: GatewayShell, reception: Reception, bounds: BodyBounds, strangers: Strangers) -> None:
        self._shell, self._reception, self._bounds = shell, reception, bounds
        self._desk, self._strangers = BodyDesk(bounds), strangers

    async def Process(self, _: Any, context: Any) -> None:
        shell, reception = self._shell, self._reception
        await PickedRequest(context, shell, reception, self._bounds, self._desk, self._strangers).serve()


class PickerServer:
    """The endpoint picker of a gateway. `ready` tells whether it can place requests; `most`: most requests at once."""

    def __init__(
        self,
        shell: GatewayShell,
        reception: Reception,
        ready: Callable[[], bool],
        *,
        bounds: BodyBounds,
        most: int,
        certificate: CertificateFiles | None = None,
        strangers: Strangers | None = None,
    ) -> None:
        options = [
            *listening_options(),
            ("grpc.max_receive_message_length", bounds.max_bytes + _MESSAGE_BYTES),
        ]
        self._ready, self._certificate = ready, certificate
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=most)
        self._health = AskedHealth()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        processor = _Processor(shell, reception, bounds, strangers or Strangers())
        ext_proc_pb2_grpc.add_ExternalProcessorServicer_to_server(processor, self._server)  # type: ignore[no-untyped-call]

    async def start(self, host: str, port: int) -> int:
        """Begins to serve and returns the port. Raises RuntimeError if it is taken."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self._certificate is None:
            bound = self._server.add_insecure_port(address)
        else:
            bound = self._server.add_secure_port(address, _credentials(self._certificate))
        for name in _ALIVE:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._tell()
        await self._server.start()
        return int(bound)

    async def watch(self) -> None:
        """Keeps the answers about its health up to date until cancelled."""
        while True:
            await asyncio.sleep(HEALTH_S)
            await self._tell()

    async def _tell(self) -> None:
        states = health_pb2.HealthCheckResponse
        for name in _READY:
            await self._health.set(name, states.SERVING if self._ready() else states.NOT_SERVING)

    async def retire(self) -> None:
        """Reports NOT_SERVING, so that proxies choose another gateway; what is open goes on."""
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        await self._server.stop(0.0)


def _credentials(files: CertificateFiles) -> grpc.ServerCredentials:
    """Returns credentials that follow the files of the certificate."""

    def configuration() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(files.key.read_bytes(), files.cert.read_bytes())], None)

    return grpc.dynamic_ssl_server_credentials(configuration(), lambda: configuration(), False)

"""The gateway's parts put together, without a mesh around them."""

from hmas.gateway.__main__ import GatewayService
from hmas.gateway.settings import GatewaySettings
from tests.gateway.gateway_script import heartbeat


async def test_ready_once_a_worker_was_heard_of_and_while_anything_can_be_reached() -> None:
    service = GatewayService("g", GatewaySettings(port=0))
    shell = service._shell
    try:
        assert not service._ready()
        shell.on_heartbeat(heartbeat("w1"))
        assert not service._ready()  # neither NATS nor a worker is connected
        shell.on_connected("w1", True, 0.0)
        assert service._ready()
    finally:
        await service._streams.close()
        await service._cognition.close()

"""`python -m hmas.gateway`."""

from hmas.gateway.service import GatewayService
from hmas.gateway.settings import GatewaySettings
from hmas.gateway.tenants.file import TenantFileError
from hmas.runtime.extras import CannotStart
from hmas.runtime.lifecycle import Stop, run_service


async def serve(settings: GatewaySettings, instance: str, stop: Stop) -> None:
    """Serves until `stop`, then drains."""
    try:
        service = GatewayService(instance, settings)
    except TenantFileError as error:
        raise CannotStart(str(error)) from error
    await service.run(stop)


def main() -> None:
    run_service("gateway", GatewaySettings, serve)


if __name__ == "__main__":
    main()

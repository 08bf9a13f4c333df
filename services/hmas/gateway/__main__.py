"""`python -m hmas.gateway`."""

import sys

from pydantic import ValidationError

from hmas.gateway.service import GatewayService
from hmas.gateway.settings import GatewaySettings
from hmas.gateway.tenants.file import TenantFileError
from hmas.runtime.lifecycle import Stop, run_service
from hmas.runtime.tracing import TracingUnavailable


async def _main(instance: str, stop: Stop, settings: GatewaySettings) -> None:
    await GatewayService(instance, settings).run(stop)


def main() -> None:
    try:
        settings = GatewaySettings()
        run_service("gateway", settings, lambda instance, stop: _main(instance, stop, settings))
    except (ValidationError, TenantFileError, TracingUnavailable, OSError) as error:
        sys.exit(f"gateway: {error}")


if __name__ == "__main__":
    main()

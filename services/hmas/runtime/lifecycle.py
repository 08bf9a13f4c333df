"""How every service starts and ends."""

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable

import structlog
import uvloop

from hmas.runtime.ids import instance_name
from hmas.runtime.logs import configure_logs
from hmas.runtime.settings import RuntimeSettings

log = structlog.get_logger()

GC_THRESHOLDS = (20_000, 20, 50)  # requests leave few cycles behind; the default of 700 walks live ones all the time


class Stop:
    """Set by SIGTERM or SIGINT; a second signal ends the process at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        if self._event.is_set():
            sys.exit(128 + number)
        self._event.set()  # before the line is logged: the pipe to a killed supervisor is broken
        log.info("stopping", signal=signal.Signals(number).name)

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


def calm_collector() -> None:
    """Imports and tables live forever: keep the collector from walking them on the hot path."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def run_service(service: str, settings: RuntimeSettings, main: Callable[[str, Stop], Awaitable[None]]) -> None:
    """Runs `main(instance, stop)` until it returns. `main` owns its task group and its drain."""
    instance = settings.instance or instance_name(service)

    async def body() -> None:
        configure_logs(service, instance, settings.log_level, settings.log_format)
        stop = Stop()
        stop.install()
        calm_collector()
        log.info("starting")
        await main(instance, stop)
        log.info("stopped")

    uvloop.run(body())

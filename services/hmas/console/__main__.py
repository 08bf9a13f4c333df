"""Starts the console: `python -m hmas.console`."""

import os

from hmas.runtime.priority import give_way, weigh_session

if __name__ == "__main__":
    give_way()  # before the imports, which are most of what a start costs

import structlog
import uvicorn

from hmas.console.rehearsals import WhatIfRunner, lacking
from hmas.console.server import console_app
from hmas.console.settings import ConsoleSettings
from hmas.console.shell import ConsoleShell
from hmas.console.stream import BrowserStreams, PageFeed
from hmas.runtime.bus import Bus
from hmas.runtime.connections import FOR_OPERATORS, guarded
from hmas.runtime.lifecycle import StopSignal, run_service, run_until
from hmas.runtime.ops import HttpServer

log = structlog.get_logger()


async def serve(settings: ConsoleSettings, name: str, stop: StopSignal) -> None:
    """Runs the console until `stop` is requested."""
    bus = Bus(settings, name)
    shell = ConsoleShell(bus, name)
    feed = PageFeed(shell.state, shell.clock)
    streams = BrowserStreams(feed)
    shell.state.whatif.lacks = lacking()
    options = (f"--nats-url={settings.nats_url}", f"--profile={settings.rehearsal_profile}")
    whatifs = WhatIfRunner(shell.state.whatif, shell.clock, options)
    app = console_app(
        settings, streams, pools=shell.pools, why=shell.why, pin=shell.pin, plan=shell.order_plan, whatif=whatifs.start
    )
    server = HttpServer(
        uvicorn.Config(
            app, host=settings.console_host, port=settings.console_port, log_config=None, access_log=False,
            http=guarded(FOR_OPERATORS), ws="none", server_header=False, timeout_graceful_shutdown=1,
        )
    )  # fmt: skip
    port = await server.start()
    weigh_session(os.getpid(), 0)  # from here on it costs what serves nothing beyond chance: docs/results/console.md
    log.info("console_listens", url=f"http://{settings.console_host}:{port}")
    try:
        await run_until(stop, bus.run(), shell.run(), shell.run_asking(feed.watched))
    finally:
        await server.stop()
        await whatifs.close()
        await bus.close()


def main() -> None:
    run_service("console", ConsoleSettings, serve)


if __name__ == "__main__":
    main()

"""How every service starts, runs its tasks, handles signals and ends."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NoReturn, TypeVar

import structlog
from pydantic import ValidationError

from hmas.event_loop import run_loop
from hmas.runtime.extras import CannotStart
from hmas.runtime.faulty_settings import unusable_file, wrong_settings
from hmas.runtime.ids import instance_name
from hmas.runtime.logs import configure_logs
from hmas.runtime.open_files import raise_open_files
from hmas.runtime.security import security_of
from hmas.runtime.settings import RuntimeSettings, wrong_variables

log = structlog.get_logger()

GC_THRESHOLDS = (20_000, 20, 50)  # requests leave few cycles; the default of 700 would scan live objects all the time


class StopSignal:
    """Tells a service to stop. It is set by SIGTERM or SIGINT; a second signal ends the process at once, whatever its
    tasks do."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.started = False  # the service has all that it needs, and its tasks run

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        if self._event.is_set():
            os._exit(128 + number)  # SystemExit would wait in `run_until` for tasks that do not end
        self._event.set()
        log.info("stopping", signal=signal.Signals(number).name)

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


CANCEL_AGAIN_S = 1.0  # time after which a task is cancelled again, because a library may swallow a cancellation


async def run_until(
    stop: StopSignal, *coros: Coroutine[Any, Any, None], drain: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Runs `coros` side by side until `stop` is set and `drain`, which is then awaited while they go on, has returned.

    If one of them returns, all are cancelled. If one fails, all are cancelled and its error is raised. All of their
    tasks have ended when this returns or raises.
    """

    async def stopped() -> None:
        await stop.wait()
        if drain is not None:
            await drain()

    stop.started = True
    tasks = [asyncio.create_task(coro) for coro in (*coros, stopped())]
    ended: set[asyncio.Task[None]] = set()
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancel(tasks)
    failed = [task for task in tasks if not task.cancelled() and task.exception() is not None]
    failed.sort(key=lambda task: task not in ended)
    for task in failed[1:] if ended.intersection(failed) else failed:
        log.warning("failed_while_stopping", error=repr(task.exception()))
    for task in ended.intersection(failed[:1]):
        task.result()


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels the tasks and waits until all have ended. If it is cancelled itself meanwhile, it still waits, and then
    raises CancelledError."""
    pending, cancelled = {task for task in tasks if not task.done()}, False
    while pending:
        for task in pending:
            task.cancel()
        try:
            _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
        except asyncio.CancelledError:
            cancelled = True
            pending = {task for task in pending if not task.done()}
    if cancelled:
        raise asyncio.CancelledError


def calm_collector() -> None:
    """Makes garbage collection rarer, and excludes from it what exists now, such as modules and tables, which live as
    long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


Settings = TypeVar("Settings", bound=RuntimeSettings)


def run_service(
    service: str, settings_class: type[Settings], main: Callable[[Settings, str, StopSignal], Awaitable[None]]
) -> None:
    """Reads the settings from the environment and runs `main(settings, instance, stop)` until it returns.

    `main` runs its tasks under `run_until` and drains. An error that an operator can fix (a wrong setting, CannotStart,
    or an OSError before the tasks run) ends the process with one line on stderr and the status EX_CONFIG; any other
    error is raised.
    """
    raise_open_files()
    try:
        _run(service, _read(settings_class), main)
    except CannotStart as error:
        _refuse(service, str(error))


def _read(settings_class: type[Settings]) -> Settings:
    try:
        return settings_class()
    except ValidationError as error:
        raise CannotStart(wrong_settings(error)) from error
    except OSError as error:
        raise CannotStart(unusable_file(error, None)) from error


def _refuse(service: str, reason: str) -> NoReturn:
    print(f"{service}: {reason}", file=sys.stderr)
    sys.exit(os.EX_CONFIG)


def _run(service: str, settings: Settings, main: Callable[[Settings, str, StopSignal], Awaitable[None]]) -> None:
    instance = settings.instance or instance_name(service)

    async def body() -> None:
        configure_logs(service, instance, settings.log_level, settings.log_format)
        stop = StopSignal()
        stop.install()
        calm_collector()
        log.info("starting")
        for variable, advice in wrong_variables(os.environ, service).items():
            log.warning("unknown_setting", variable=variable, advice=advice)
        try:
            async with security_of(settings).kept_fresh():
                await main(settings, instance, stop)
        except OSError as error:
            if stop.started:
                raise
            raise CannotStart(unusable_file(error, settings) or type(error).__name__) from error
        log.info("stopped")

    run_loop(body())

"""`run_until`: what a service does all its life ends together, and nothing of it is left behind. `run_service`: which
errors are an operator's to mend."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from hmas.runtime import lifecycle
from hmas.runtime.extras import CannotStart
from hmas.runtime.lifecycle import StopSignal, run_until
from hmas.runtime.settings import RuntimeSettings
from tests.conftest import PATIENCE_S


class Worked:
    """A coroutine that runs until cancelled, and survives the first `swallows` cancellations."""

    def __init__(self, swallows: int = 0) -> None:
        self.swallows = swallows
        self.started = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        self.started.set()
        try:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if not self.swallows:
                        raise
                    self.swallows -= 1
        finally:
            self.ended = True


class Refused(Exception):
    pass


async def fail(after: asyncio.Event, error: Exception) -> None:
    await after.wait()
    raise error


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def settle(call: Coroutine[Any, Any, None]) -> BaseException | None:
    (result,) = await asyncio.wait_for(asyncio.gather(call, return_exceptions=True), PATIENCE_S)
    assert not others()
    return result


async def test_a_stop_ends_all() -> None:
    stop, works = StopSignal(), [Worked(), Worked()]
    asyncio.get_running_loop().call_soon(stop.set)
    assert await settle(run_until(stop, *(w.run() for w in works))) is None
    assert all(w.ended for w in works)


async def test_the_first_failure_ends_all_and_is_raised() -> None:
    work = Worked()
    failure = fail(work.started, Refused("first"))
    result = await settle(run_until(StopSignal(), work.run(), failure))
    assert isinstance(result, Refused)
    assert work.ended


async def test_one_that_returns_ends_all() -> None:
    work = Worked()
    assert await settle(run_until(StopSignal(), work.run(), work.started.wait())) is None  # type: ignore[arg-type]
    assert work.ended


async def test_of_two_failures_at_once_one_is_raised_and_none_is_lost() -> None:
    work = Worked()
    failures = [fail(work.started, Refused(name)) for name in ("a", "b")]
    result = await settle(run_until(StopSignal(), work.run(), *failures))
    assert str(result) == "a"


async def test_a_swallowed_cancellation_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "CANCEL_AGAIN_S", 0.001)
    stop, stubborn = StopSignal(), Worked(swallows=1)
    asyncio.get_running_loop().call_soon(stop.set)
    assert await settle(run_until(stop, stubborn.run())) is None
    assert (stubborn.swallows, stubborn.ended) == (0, True)


async def test_a_caller_that_is_cancelled_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "CANCEL_AGAIN_S", 0.001)
    stubborn = Worked(swallows=1)
    call = asyncio.create_task(run_until(StopSignal(), stubborn.run()))
    await stubborn.started.wait()
    call.cancel()
    await asyncio.sleep(0)
    call.cancel()  # while it waits for the stubborn one
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, PATIENCE_S)
    assert stubborn.ended
    assert not others()


async def test_the_drain_runs_beside_the_rest_and_ends_it() -> None:
    stop, work, alive = StopSignal(), Worked(), []

    async def drain() -> None:
        alive.append(not work.ended)

    asyncio.get_running_loop().call_soon(stop.set)
    assert await settle(run_until(stop, work.run(), drain=drain)) is None
    assert alive == [True]
    assert work.ended


async def test_a_failure_cuts_the_drain_short() -> None:
    stop, draining = StopSignal(), Worked()
    stop.set()
    result = await settle(run_until(stop, fail(draining.started, Refused("late")), drain=draining.run))
    assert isinstance(result, Refused)
    assert draining.ended


async def test_an_error_on_the_way_out_is_no_failure_of_the_service() -> None:
    async def sore() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise Refused("while it is cancelled")

    stop = StopSignal()
    asyncio.get_running_loop().call_soon(stop.set)
    assert await settle(run_until(stop, sore())) is None


class Wrong(BaseModel):
    port: int


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("error", [OSError("address in use"), TimeoutError(), CannotStart("no model")])
def test_only_what_an_operator_can_mend_ends_with_one_line(
    error: Exception, started: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(settings: RuntimeSettings, instance: str, stop: StopSignal) -> None:
        if started:
            await run_until(stop, fail(ready(), error))
        raise error

    operators = not started or isinstance(error, CannotStart)
    with pytest.raises(SystemExit if operators else type(error)) as ended:
        served(main, monkeypatch)
    if operators:
        assert ended.value.args == (os.EX_CONFIG,)
        assert capsys.readouterr().err.endswith(f"test: {str(error) or type(error).__name__}\n")


def test_a_value_that_is_wrong_later_is_no_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(settings: RuntimeSettings, instance: str, stop: StopSignal) -> None:
        Wrong.model_validate({"port": "x"})

    with pytest.raises(ValidationError):
        served(main, monkeypatch)


def served(main: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a service without touching what the process has only once."""
    monkeypatch.setattr(lifecycle, "calm_collector", lambda: None)
    monkeypatch.setattr(lifecycle, "configure_logs", lambda *_: None)
    lifecycle.run_service("test", RuntimeSettings, main)


def ready() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


STUBBORN = """
import asyncio
from hmas.runtime.lifecycle import StopSignal, run_until

async def stubborn():
    while True:
        print("it runs", flush=True)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main():
    stop = StopSignal()
    stop.install()
    await run_until(stop, stubborn())

asyncio.run(main())
"""


def test_a_second_signal_ends_a_process_whose_tasks_do_not_end() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            runs = (line for line in process.stdout if line == "it runs\n")  # the log stands there, too
            for _ in range(2):  # when it starts, and when the first signal has cancelled it in vain
                next(runs)
                process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
        finally:
            process.kill()

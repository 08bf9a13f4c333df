"""`run_until`: what a service does all its life ends together, and nothing of it is left behind."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from hmas.runtime import lifecycle
from hmas.runtime.lifecycle import StopSignal, run_until


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
    (result,) = await asyncio.wait_for(asyncio.gather(call, return_exceptions=True), 10)
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
        await asyncio.wait_for(call, 10)
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

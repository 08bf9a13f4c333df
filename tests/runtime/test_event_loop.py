import asyncio
import sys

import pytest
import uvloop

from hmas.event_loop import run_loop


async def loop_in_use() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_uvloop_runs_a_process_where_there_is_one() -> None:
    assert isinstance(run_loop(loop_in_use()), uvloop.Loop)


def test_on_windows_the_standard_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert not isinstance(run_loop(loop_in_use()), uvloop.Loop)

"""The process of a rehearsal gives way to the services of the mesh, each of which leads a session of its own."""

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from hmas.meta import rehearsals
from hmas.meta.rehearsals import RehearsalRunner
from hmas.runtime.priority import LOWEST

AUTOGROUP = Path("/proc/self/autogroup")


@pytest.mark.skipif(not os.access(AUTOGROUP, os.W_OK), reason="no autogroups that can be set here")
async def test_its_session_has_the_lowest_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsals, "MODULE", "http.server")  # one that does not end by itself
    bus: Any = None
    running = asyncio.create_task(RehearsalRunner(bus, "", lambda _: None)._simulated(b"", b""))
    others = set(psutil.Process().children())
    async with asyncio.timeout(20.0):
        while not (started := set(psutil.Process().children()) - others):
            await asyncio.sleep(0.01)
        (child,) = started
        while f"nice {LOWEST}" not in told_of(child.pid):
            await asyncio.sleep(0.01)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    assert f"nice {LOWEST}" not in AUTOGROUP.read_text()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not child.is_running()


def told_of(pid: int) -> str:
    return Path(f"/proc/{pid}/autogroup").read_text()

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


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel has no autogroups")
async def test_its_session_has_the_lowest_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsals, "MODULE", "http.server")  # one that does not end by itself
    bus: Any = None
    running = asyncio.create_task(RehearsalRunner(bus, "", lambda _: None)._simulated(b"", b""))
    me = psutil.Process()
    async with asyncio.timeout(20.0):
        while not (children := me.children()) or f"nice {LOWEST}" not in told_of(children[0].pid):
            await asyncio.sleep(0.01)
    assert os.getsid(children[0].pid) == children[0].pid != os.getsid(0)
    assert f"nice {LOWEST}" not in AUTOGROUP.read_text()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not me.children()


def told_of(pid: int) -> str:
    return Path(f"/proc/{pid}/autogroup").read_text()

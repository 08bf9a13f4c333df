"""A worker dies that has engines by leases: they move to the other worker, nothing is lost, and N_run holds."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.counts import CountLog
from tests.chaos.hurt import frozen, kept_dead, metric
from tests.chaos.load import Load
from tests.conftest import eventually
from tests.engine_farm import farm_in

pytestmark = [pytest.mark.chaos, pytest.mark.long]
N_RUN = 8
WORKERS = ("worker-1", "worker-2")


def owns(mesh: Any, name: str) -> int:
    """How many engines a worker has; -1: it does not answer."""
    try:
        return int(metric(mesh.state["ops_urls"][name], "hmas_worker_engines_owned"))
    except httpx.TransportError:
        return -1


async def test_the_engines_of_a_dead_or_frozen_worker_move_and_n_run_holds(tmp_path: Path, start_mesh: Any) -> None:
    with farm_in(tmp_path) as farm:
        engines = farm.start(2)
        env = {"HMAS_DISCOVERY_PERIOD_S": "0.2", "HMAS_STATIC_N_RUN": str(N_RUN), "HMAS_MIN_DWELL_S": "60"}
        args = ("--replay", "--engine", f"file+{farm.file}", "--model", "emulated")
        with start_mesh(tmp_path / "mesh", *args, env=env) as mesh:
            farm.name(*engines)
            await eventually(lambda: [owns(mesh, name) for name in WORKERS] == [1, 1], 20)
            with CountLog(engines) as counts:
                async with Load(mesh.url, rate=7.0, output_tokens=60) as load:
                    await asyncio.sleep(1.0)
                    with kept_dead(mesh, ["worker-1"]):
                        killed_s = time.monotonic()
                        await eventually(lambda: owns(mesh, "worker-2") == 2, 20)
                        moved_s = time.monotonic() - killed_s
                        await asyncio.sleep(2.0)
                    await eventually(lambda: [owns(mesh, name) for name in WORKERS] == [1, 1], 30)
                    with frozen(mesh, "worker-2"):
                        await eventually(lambda: owns(mesh, "worker-1") == 2, 20)
                    await eventually(lambda: [owns(mesh, name) for name in WORKERS] == [1, 1], 30)
                    await asyncio.sleep(1.0)
    print(f"engines moved {moved_s:.1f} s after the kill; {load.ends}; most sequences {counts.most()} of {N_RUN}")
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
    assert not counts.excesses(N_RUN), [str(each) for each in counts.excesses(N_RUN)]


async def test_engines_move_after_nats_restarted_while_no_agent_lives(tmp_path: Path, start_mesh: Any) -> None:
    """NATS keeps leases in its memory alone, and nobody but the workers can make their bucket then."""
    with farm_in(tmp_path) as farm:
        engines = farm.start(2)
        env = {"HMAS_DISCOVERY_PERIOD_S": "0.2", "HMAS_STATIC_N_RUN": str(N_RUN)}
        args = ("--replay", "--engine", f"file+{farm.file}", "--model", "emulated")
        with start_mesh(tmp_path / "mesh", *args, env=env) as mesh:
            farm.name(*engines)
            await eventually(lambda: [owns(mesh, name) for name in WORKERS] == [1, 1], 20)
            with CountLog(engines) as counts, kept_dead(mesh, ["qos", "meta", "statera"]):
                async with Load(mesh.url, rate=5.0) as load:
                    mesh.kill("nats")
                    await asyncio.sleep(1.0)
                    await eventually(lambda: connected(mesh), 30)
                    await asyncio.sleep(3.0)
                    await eventually(lambda: [owns(mesh, name) for name in WORKERS] == [1, 1], 30)
                    with kept_dead(mesh, ["worker-1"]):
                        await eventually(lambda: owns(mesh, "worker-2") == 2, 20)
                        await asyncio.sleep(2.0)
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
    assert not counts.excesses(N_RUN), [str(each) for each in counts.excesses(N_RUN)]


def connected(mesh: Any) -> bool:
    return all(metric(mesh.state["ops_urls"][name], "hmas_nats_connected") == 1 for name in WORKERS)

"""Engines come and go under load, as a file names them: nothing is lost, each belongs to one worker, and what leaves is
drained."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.hurt import metric
from tests.chaos.load import Load
from tests.conftest import eventually
from tests.engine_farm import farm_in, is_healthy

pytestmark = pytest.mark.e2e
WORKERS = ("worker-1", "worker-2")


def owned(mesh: Any) -> dict[str, int]:
    return {name: int(metric(mesh.state["ops_urls"][name], "hmas_worker_engines_owned")) for name in WORKERS}


def served(url: str) -> float:
    return metric(url, "vllm:request_success_total")


async def test_engines_come_and_go_under_load_and_nothing_is_lost(tmp_path: Path, start_mesh: Any) -> None:
    with farm_in(tmp_path) as farm:
        two = farm.start(2)
        env = {"HMAS_DISCOVERY_PERIOD_S": "0.2", "HMAS_LEAVE_GRACE_S": "20"}
        args = ("--replay", "--engine", f"file+{farm.file}", "--model", "emulated")
        with start_mesh(tmp_path / "mesh", *args, env=env) as mesh:
            farm.name(*two)
            await eventually(lambda: sorted(owned(mesh).values()) == [1, 1], 20)
            async with Load(mesh.url) as load:
                await asyncio.sleep(1.0)
                more = farm.start(2)
                await eventually(lambda: all(is_healthy(url) for url in more), 20)
                farm.name(*two, *more)
                await eventually(lambda: sorted(owned(mesh).values()) == [2, 2], 20)
                await eventually(lambda: min(served(url) for url in (*two, *more)) > 0, 20)
                farm.name(more[0])
                await eventually(lambda: sum(owned(mesh).values()) == 1, 30)
                farm.stop(*two, more[1])  # nothing runs there any more
                before = served(more[0])
                await asyncio.sleep(1.0)
                assert served(more[0]) > before
    assert set(load.ends) == {"finished"}, (load.ends, load.details)


@pytest.mark.long
async def test_an_entry_that_changes_under_its_name_counts_at_once(tmp_path: Path, start_mesh: Any) -> None:
    with farm_in(tmp_path) as farm:
        first, second = farm.start(2)
        await eventually(lambda: is_healthy(first) and is_healthy(second), 60)
        env = {"HMAS_DISCOVERY_PERIOD_S": "0.2", "HMAS_LEAVE_GRACE_S": "20"}
        args = ("--replay", "--engine", f"file+{farm.file}", "--model", "emulated")
        with start_mesh(tmp_path / "mesh", *args, env=env) as mesh:
            farm.file.write_text(json.dumps([{"name": "one", "url": first, "max_num_seqs": 8}]))
            await eventually(lambda: sum(owned(mesh).values()) == 1, 20)
            async with Load(mesh.url, rate=4.0) as load:
                await eventually(lambda: served(first) > 0, 20)
                farm.file.write_text(json.dumps([{"name": "one", "url": second, "max_num_seqs": 4}]))
                await eventually(lambda: served(second) > 0, 30)
                await asyncio.sleep(1.0)
                before = served(first), served(second)
                await asyncio.sleep(2.0)
                assert served(first) == before[0]
                assert served(second) > before[1]
    assert set(load.ends) == {"finished"}, (load.ends, load.details)

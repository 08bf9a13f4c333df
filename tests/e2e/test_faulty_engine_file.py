"""The file of engines changes under a running worker into what would kill or hold it: nothing changes but a line in the
log, requests go on, and the next file that can be used is."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.hurt import metric
from tests.chaos.load import Load
from tests.conftest import eventually
from tests.engine_farm import farm_in, is_healthy
from tests.worker.discovery.test_sources import BOMB

pytestmark = pytest.mark.e2e
WORKER = "worker-1"
FAULTY = {
    "nested more than 4 deep": b"[" * 100_000,
    "must hold no alias": BOMB,
    "more than 65536 values": b"- [" + b"x, " * 200_000 + b"x]",
    "larger than": b"#" * 2**21,
    "is not a URL": b"- http://[::1:8000\n",
    "entry 1.max_num_seqs (line 2)": b"- http://127.0.0.1:9\n- {url: 'http://127.0.0.1:10', max_num_seqs: 1e23}\n",
    "it must be one line": b'- {url: "http://127.0.0.1:9", name: "a\\nb"}\n',
    "not valid YAML": b"- \x00\n",
}


def replace(path: Path, text: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(text)
    fresh.replace(path)


async def test_a_faulty_file_changes_nothing_live(tmp_path: Path, start_mesh: Any) -> None:
    with farm_in(tmp_path) as farm:
        first, second = farm.start(2)
        await eventually(lambda: is_healthy(first) and is_healthy(second), 60)
        farm.name(first)
        args = ("--replay", "--engine", f"file+{farm.file}", "--model", "emulated", "--workers", "1")
        with start_mesh(tmp_path / "mesh", *args, env={"HMAS_DISCOVERY_PERIOD_S": "0.1"}) as mesh:

            def owned() -> int:
                return int(metric(mesh.state["ops_urls"][WORKER], "hmas_worker_engines_owned"))

            await eventually(lambda: owned() == 1, 30)
            pid = mesh.pid(WORKER)
            async with Load(mesh.url, rate=4.0) as load:
                for reason, text in FAULTY.items():
                    replace(farm.file, text)
                    await eventually(partial(lambda told: told in mesh.output.read_text(), reason), 30)
                    assert (mesh.pid(WORKER), owned()) == (pid, 1)
                before = metric(first, "vllm:request_success_total")
                await asyncio.sleep(1.0)
                assert metric(first, "vllm:request_success_total") > before
                replace(farm.file, json.dumps([first, second]).encode())
                await eventually(lambda: owned() == 2, 30)
            assert mesh.pid(WORKER) == pid
            log = mesh.output.read_text()
            assert log.count("engine_file_unusable") == len(FAULTY)
            assert "Traceback" not in log
    assert set(load.ends) == {"finished"}, (load.ends, load.details)

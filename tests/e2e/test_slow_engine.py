"""An engine that takes ten times as long for a step as the other gets few of the requests that need short ones."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from hmas.mesh.ports import free_port
from tests.chaos.load import Load
from tests.conftest import eventually
from tests.engine_farm import is_healthy

pytestmark = [pytest.mark.e2e, pytest.mark.long]
STEPS_S = {"quick": 0.02, "slow": 0.2}
TTFT_MS, TPOT_MS = 4000, 100  # between the two
SECONDS, RATE, TOKENS = 20.0, 10.0, 40  # the quick one serves a request in less than a second, the slow one in 8
# By workers: the share that the slow engine may serve. By number of requests and backlog alone it served 0.11 and 0.26.
# While it runs nothing it is not known to be slow, and a gateway hears of its steps once a second: it gets some.
MOST_ON_SLOW = {1: 0.08, 2: 0.13}


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The URLs of a quick and a slow engine."""
    file = tmp_path / "profiles.yaml"
    limits = {"max_num_seqs": 64, "num_gpu_blocks": 4096, "max_model_len": 2048}
    file.write_text(
        yaml.safe_dump(
            {
                name: {"cost": {"c0_s": step_s, "c_p_s": 1e-5, "c_d_s": 0.0, "c_k_s": 0.0}, "limits": limits}
                for name, step_s in STEPS_S.items()
            }
        )
    )
    urls = {}
    with ExitStack() as stack:
        for name in STEPS_S:
            port = free_port()
            engine = subprocess.Popen(
                [sys.executable, "-m", "hmas.engine", "--profile-file", str(file), "--profile", name,
                 "--port", str(port), "--served-model-name", "emulated"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(engine.wait)
            stack.callback(engine.kill)
            urls[name] = f"http://127.0.0.1:{port}"
        yield urls


def served(url: str) -> int:
    """Returns how many requests the engine has ended, by its own count."""
    found = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=10).text)
    return int(sum(s.value for each in found for s in each.samples if s.name == "vllm:request_success_total"))


@pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "a worker an engine"])
async def test_requests_that_need_short_steps_go_to_the_quick_engine(
    tmp_path: Path, start_mesh: Any, engines: dict[str, str], workers: int
) -> None:
    await eventually(lambda: all(map(is_healthy, engines.values())), 60.0)
    named = [option for url in engines.values() for option in ("--engine", url)]
    with start_mesh(tmp_path, "--replay", *named, "--max-num-seqs", "64", "--workers", str(workers)) as mesh:
        async with Load(mesh.url, rate=RATE, output_tokens=TOKENS, streams=3, slos=((TTFT_MS, TPOT_MS),)) as load:
            await asyncio.sleep(SECONDS)
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
    on = {name: served(url) for name, url in engines.items()}
    print(f"of {load.ends.total()} requests the slow engine served {on['slow']}, the quick one {on['quick']}")
    assert on["slow"] + on["quick"] == load.ends.total()
    assert on["slow"] <= MOST_ON_SLOW[workers] * load.ends.total()

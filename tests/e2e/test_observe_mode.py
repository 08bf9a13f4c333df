"""Observing: no request waits for a grant, what workers would have granted is recorded, and scheduling is a restart
away."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.chaos.hurt import metric
from tests.chaos.load import Load
from tests.conftest import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.long]
ONE_AT_A_TIME = {"HMAS_STATIC_N_RUN": "1", "HMAS_TUPLE_VALID_FOR_S": "1"}


async def test_observing_lets_everything_run_and_records_what_would_have_been_granted(
    tmp_path: Path, start_mesh: Any
) -> None:
    args = ("--replay", "--emulated", "1")
    with start_mesh(tmp_path / "mesh", *args, env={**ONE_AT_A_TIME, "HMAS_MODE": "observe"}) as mesh:
        async with Load(mesh.url, rate=8.0, output_tokens=40) as load:
            await asyncio.sleep(3.0)
            most = metric(mesh.state["engine_urls"][0], "vllm:num_requests_running")
        assert set(load.ends) == {"finished"}, (load.ends, load.details)
        assert {each.mode for each in load.answered} == {"observe"}
        assert most > 1  # although workers would grant one after another
        worker = mesh.state["ops_urls"]["worker-1"]
        await eventually(lambda: metric(worker, "hmas_worker_would_wait_seconds_count") == len(load.answered), 30)
        assert metric(worker, "hmas_worker_would_wait_seconds_sum") > 1.0
        with openai.OpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0) as client:
            answer = client.completions.with_raw_response.create(model="emulated", prompt="Why?", max_tokens=4)
            both = client.completions.with_raw_response.create(model="emulated", prompt="Why?", max_tokens=4, n=2)
        assert both.headers["x-hmas-mode"] == "observe"
        why = mesh.hmas("why", answer.headers["x-request-id"], "--json", timeout=120)
        timeline = json.loads(why.stdout)
        assert timeline["would_be_grant"]["worker"] == "worker-1"
        assert [run["observed"] for run in timeline["runs"]] == [True]
        top = mesh.hmas("top", "--once", "1.5").stdout
        assert "observes" in top
        assert "observing, nothing waits" in top
        assert "nothing is in force" in mesh.hmas("pin", "edf", timeout=120).stdout
        assert "lifted" in mesh.hmas("pin", "off", timeout=120).stdout
        page = tmp_path / "report.html"
        report = mesh.hmas("report", "--last", "1h", "--no-engines", "--out", str(page), timeout=120)
        assert report.returncode in (0, 3), report.stderr  # a few seconds of load may tell too little
        assert "What scheduling would bring" in page.read_text()
    with (
        start_mesh(tmp_path / "mesh", *args) as mesh,
        openai.OpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0) as client,
    ):
        answer = client.completions.with_raw_response.create(model="emulated", prompt="Why?", max_tokens=4)
        assert "x-hmas-mode" not in answer.headers

"""A running mesh changes its topology by itself when the traffic turns, and says who proposed it, what was predicted
and what came."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.conftest import HMAS
from tests.e2e.audits import Audits

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def adaptive(tmp_path: Path, start_mesh: Any) -> Iterator[Any]:
    """A mesh that begins with arrival order, as one would that an operator left so."""
    env = {
        "HMAS_META_PERIOD_S": "5", "HMAS_MIN_DWELL_S": "5", "HMAS_REHEARSE": "on", "HMAS_USUAL_TOPOLOGY": "fcfs",
        "HMAS_REHEARSAL_WINDOW_S": "200", "HMAS_REHEARSAL_CPU_SHARE": "1",
    }  # fmt: skip
    with start_mesh(tmp_path / "mesh", "--replay", env=env) as mesh:
        yield mesh


def load(mesh: Any, rate: float, seconds: int, out: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [HMAS, "load", "run", "azure-like", "--url", mesh.url, "--replay-field", "--duration", str(seconds), "--rate",
         f"{rate:g}", "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


async def why_now(mesh: Any) -> Any:
    """What `hmas why` says of the decision in force, asked with a request of its own."""
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="x", max_retries=0, timeout=120) as client:
        answer = await client.chat.completions.with_raw_response.create(
            model="emulated", messages=[{"role": "user", "content": "hi"}], max_tokens=3
        )
    why = mesh.hmas("why", answer.headers["x-request-id"], "--json", timeout=60)
    return json.loads(why.stdout)["in_force_now"]


async def test_the_topology_changes_when_the_traffic_turns_and_everyone_says_why(adaptive: Any, tmp_path: Path) -> None:
    mesh = adaptive
    async with Audits() as audits:
        await audits.listen(mesh)
        calm = load(mesh, 2.0, 30, tmp_path / "calm")
        await asyncio.to_thread(calm.wait)
        assert not [r for r in audits.found if r.kind == "decided" and r.decision != "fcfs"], audits.found
        busy = load(mesh, 6.0, 400, tmp_path / "busy")
        try:
            switch = await audits.wait(300.0, lambda r: r.kind == "decided" and r.predicted_gain is not None)
            assert switch is not None, [(r.kind, r.decision, r.reason) for r in audits.found]
            assert (switch.selector, switch.decision != "fcfs") == ("rules", True)
            assert (switch.predicted_gain or 0.0) > 0.01
            assert "points predicted" in switch.reason

            top = mesh.hmas("top", "--once", "8", timeout=120)
            shown = " ".join(top.stdout.split())
            since = audits.told_since(switch)
            assert any(f"by {who}" in shown and said[:20] in shown for who, said in since), top.stdout
            told = await why_now(mesh)
            since = audits.told_since(switch)
            assert any(told["proposer"] == who and said in told["reason"] for who, said in since), (told, since)

            came = await audits.wait(220.0, lambda r: r.kind in ("outcome", "rolled_back"))
            assert came is not None, [(r.kind, r.decision, r.reason) for r in audits.found]
            if came.kind == "outcome":
                assert came.observed_gain is not None
                decided = {(r.decision, r.predicted_gain) for r in audits.found if r.kind == "decided"}
                assert (came.decision, came.predicted_gain) in decided  # another switch may have followed the first
                told = await why_now(mesh)
                print(f"hmas why: {told['topology']}, {told['came']}")
                if told["topology"] == came.decision:
                    assert told["came"] == came.reason
                print(f"{switch.decision}: {came.reason}")
        finally:
            busy.terminate()
            busy.wait()

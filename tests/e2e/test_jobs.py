"""Jobs on a running mesh: the load generator sends them in a closed loop, and `hmas why`, `jobs`, `top` and the
metrics show them."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hmas_loadgen.output import load_run
from tests.conftest import HMAS, OPS_HEADERS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(560), pytest.mark.long]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    """A mesh whose emulated engines have prefix caches, and say what of a prompt they had cached."""
    with start_mesh(tmp_path_factory.mktemp("jobs-mesh"), "--replay", "--profile", "llama3.1-8b-rtx4090x1") as running:
        yield running


@pytest.fixture(scope="module")
def run(mesh: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's own workflows, without a word of jobs in any request. The command's status says whether it kept its
    own pace, which a busy machine may not let it."""
    out = tmp_path_factory.mktemp("jobs") / "run"
    args = ("--rate", "1", "--duration", "4", "--seed", "10", "--url", mesh.url, "--replay-field", "--job-budget", "60",
            "--drain", "120", "--out", str(out))  # fmt: skip
    command = (HMAS, "load", "run", "--workflow", "typed", *args)
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert "job goodput" in done.stdout, done.stdout + done.stderr
    return out


def test_every_call_of_a_job_comes_after_those_before_it_and_the_report_shows_jobs(run: Path) -> None:
    result = load_run(run)
    score = result.jobs()[""]
    assert score.offered >= 3
    assert score.lost == 0
    assert score.calls == len(result.records) > score.offered
    assert json.loads((run / "summary.json").read_text())["jobs"]["all"]["offered"] == score.offered
    assert "job goodput" in (run / "report.html").read_text()


def told(mesh: Any, request_id: str) -> dict[str, Any]:
    done = mesh.hmas("why", request_id, "--json", timeout=60)
    assert done.returncode == 0, done.stderr
    timeline: dict[str, Any] = json.loads(done.stdout)
    return timeline


def test_why_shows_the_stages_of_the_job_with_promised_and_real_cache(mesh: Any, run: Path) -> None:
    records = load_run(run).records
    chains = [r for r in records if sum(other.job == r.job for other in records) > 2]
    assert chains
    job = chains[0].job
    calls = [r for r in records if r.job == job]
    timeline = told(mesh, calls[-1].request_id)
    stages = timeline["stages"]
    assert [s["began_s"] for s in stages] == sorted(s["began_s"] for s in stages)
    assert [s["stage"] for s in stages] == list(range(len(stages)))
    assert len(stages) == len(calls)  # the gateway found them all by their prompts
    assert timeline["request_id"] in {s["request"] for s in stages}
    assert all(s["promised"] is not None and s["outcome"] == "finished" for s in stages)
    assert all(s["cached"] is not None for s in stages)
    print(*stages, sep="\n")
    # They go on from the first one's prompt, which an engine has that served a stage of it before.
    onward = [s for n, s in enumerate(stages) if s["engine"] in {before["engine"] for before in stages[:n]}]
    assert onward
    assert all(s["cached"] > 0 and s["promised"] > 0 for s in onward)
    shown = mesh.hmas("why", calls[-1].request_id, timeout=60).stdout
    assert "stages" in shown


def test_jobs_and_top_show_templates(mesh: Any, run: Path) -> None:
    jobs = mesh.hmas("jobs", timeout=60).stdout
    assert "slowest templates" in jobs
    offered = load_run(run).jobs()[""].offered
    top = mesh.hmas("top", "--once", "2", timeout=60).stdout
    assert "jobs: " in top
    assert int(top.split("jobs: ")[1].split()[0]) >= offered


def test_metrics_count_the_calls_by_how_their_job_was_found(mesh: Any, run: Path) -> None:
    url = mesh.gateway_ops_url
    text = httpx.get(f"{url}/metrics", headers=OPS_HEADERS[url]).text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("hmas_gateway_job"))
    score = load_run(run).jobs()[""]
    linked = {name: float(value) for name, value in lines.items() if name.startswith("hmas_gateway_job_calls_total")}
    assert sum(linked.values()) >= score.calls
    assert linked['hmas_gateway_job_calls_total{linked="prefix"}'] > 0
    assert float(lines['hmas_gateway_job_tokens_total{kind="prompt"}']) > 0

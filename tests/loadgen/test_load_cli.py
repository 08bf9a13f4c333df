"""The command line, run as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hmas_loadgen.cli import app
from hmas_loadgen.execute import PlannedRuns, execute
from hmas_loadgen.options import RunOptions, build_plans, build_target, read_tenants
from hmas_loadgen.output import REPORT, SUMMARY
from hmas_loadgen.plan import Lengths
from hmas_loadgen.source import WORKLOADS, Source
from tests.loadgen.runner.openai_server import fake_engine

RUNNER = CliRunner()
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i / 100},9,2\n" for i in range(30))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text(TRACE)
    return path


def call(*args: object, code: int = 0) -> str:
    found = RUNNER.invoke(app, [str(arg) for arg in args], env={"COLUMNS": "200", "HMAS_API_KEY": ""})
    assert found.exit_code == code, found.output
    return found.output


def test_every_made_workload_loads_annotated() -> None:
    for name in WORKLOADS:
        made = Source(trace=name, rate_rps=4.0, duration_s=30.0, seed=1).load()
        assert made.duration_s == 30.0
        assert all(row.slo is not None and row.task is not None for row in made.rows)


def test_a_source_windows_scales_and_spreads(trace: Path) -> None:
    loaded = Source(trace=str(trace), start_s=0.1, duration_s=0.1, speed=0.5, factor=3.0, tenants={"a": 1.0}).load()
    assert loaded.duration_s == pytest.approx(0.2)
    assert len(loaded.rows) == 30
    assert {row.tenant for row in loaded.rows} == {"a"}
    by_time = Source(trace=str(trace), rate_rps=5.0, by_time=True).load()
    assert len(by_time.rows) == 30
    assert by_time.duration_s == pytest.approx(6.0)


def test_traces_list_and_stats(trace: Path) -> None:
    assert "mooncake-conversation" in call("traces", "list")
    told = json.loads(call("traces", "stats", trace, "--json"))
    assert told["own.csv"]["requests"] == 30
    assert "peak_rps" in call("traces", "stats", trace)


def test_annotate_writes_parquet(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    assert "30 requests" in call("annotate", trace, out, "--seed", 3)
    assert all(row.slo for row in Source(trace=str(out)).load().rows)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["run", "nothing.csv", "--url", "http://h:1", "--model", "m"],
            "Give the path of a trace file or one of: azure-like",
        ),
        (["run", "burstgpt", "--url", "http://h:1", "--model", "m"], "'hmas load traces fetch burstgpt' first"),
        (["run", "poisson", "--model", "m"], "no target: give --url"),
        (["run", "poisson", "--url", "h:1", "--model", "m"], "must start with http://"),
        (["run", "poisson", "--url", "http://127.0.0.1:1"], "start the target or give --model"),
        (["run", "poisson", "--url", "http://h:1", "--model", "m", "--api", "rest"], "use chat or completions"),
        (["run", "poisson", "--url", "http://h:1", "--model", "m", "--body", "a=b"], "is not JSON"),
        (["run", "poisson", "--url", "http://h:1", "--model", "m", "--header", "a"], "must have the form NAME=VALUE"),
        (["compare", "nowhere"], "holds no run"),
        (["traces", "fetch", "nothing"], "no public trace is named 'nothing'"),
    ],
)
def test_what_a_user_can_mend_is_one_line(args: list[str], message: str) -> None:
    assert message in call(*args, code=2).replace("\n", " ")


def test_options_become_plans(trace: Path, tmp_path: Path) -> None:
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("acme: {share: 3, key: sk-a}\nbeta:\n")
    options = RunOptions(
        trace=str(trace),
        url=["http://h:1"],
        model="m",
        replay_field=True,
        tenants=tenants,
        rate=[10.0, 20.0],
        seed=[1, 2],
        out=tmp_path / "o",
        body=["temperature=0.5"],
    )
    plans = build_plans(options)
    assert [folder.name for _, folder in plans] == ["own-r10-s1", "own-r10-s2", "own-r20-s1", "own-r20-s2"]
    plan = plans[0][0]
    assert plan.target.lengths is Lengths.REPLAY_FIELD
    assert plan.target.tenant_keys == {"acme": "sk-a"}
    assert plan.target.body == {"temperature": 0.5}
    assert {row.tenant for row in plans[3][0].trace.rows} == {"acme", "beta"}
    tenants.write_text("acme: {secret: 1}\n")
    with pytest.raises(ValueError, match="must have no fields but share and key"):
        read_tenants(tenants)
    assert (
        build_target(RunOptions(trace="x", url=["http://h:1"], model="m", natural=True), {}).lengths is Lengths.NATURAL
    )


async def test_a_series_runs_resumes_and_compares(trace: Path, tmp_path: Path) -> None:
    console = Console(file=open(os.devnull, "w"), width=120)  # noqa: SIM115
    async with fake_engine() as engine:
        options = RunOptions(
            trace=str(trace), url=[engine.url], model="m", rate=[100.0, 200.0], by_time=True, out=tmp_path / "o"
        )
        plans = build_plans(options)
        first, stopped = await execute(PlannedRuns(plans[:1]), console)
        both, _ = await execute(PlannedRuns(plans, resume=True), console)
    console.file.close()
    assert not stopped
    assert both[0].score() == first[0].score()
    assert len(engine.seen) == 60  # the finished run was not repeated
    for _, folder in plans:
        assert (folder / SUMMARY).exists()
        assert (folder / REPORT).exists()
    page = tmp_path / "compare.html"
    text = call("compare", *(folder for _, folder in plans), "--out", page)
    assert "own-r100-s0" in text
    assert page.read_text().count("<svg") == 5


@pytest.mark.parametrize("module", ["hmas_loadgen", "hmas_loadgen.cli"])
def test_heavy_imports_wait(module: str) -> None:
    heavy = "{'numpy', 'matplotlib', 'pyarrow'}"
    code = f"import sys, {module}; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Every table of the command line at 80 columns: no figure is broken, no name is cut off."""

from dataclasses import fields
from typing import Any

import pytest
from rich.console import Console, Group, RenderableType

from benchmarks.hop import __main__ as hop
from benchmarks.run import table_of
from hmas.contracts.control import TopologyName
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.step_cost import StepCostModel
from hmas.contracts.views import ShareView, Tail, VLong, VShort
from hmas.engine.core.profile import EngineLimits
from hmas.gateway.tenants.file import TenantKey
from hmas.gateway.tenants.keys_cli import key_table
from hmas.mesh.calibrate.measurement import Measurement
from hmas.mesh.calibrate.outcome import calibrated, plots
from hmas.mesh.calibrate.outcome import table as calibration_table
from hmas.mesh.compare.runs import Replay
from hmas.mesh.compare.table import comparison_table
from hmas.mesh.doctor import Finding, findings_table
from hmas.mesh.top.view import render_top
from hmas.operator.mesh_view import MeshView
from hmas.operator.why import render_why
from hmas_lab.perception import cli as perception_cli
from hmas_lab.prediction import cli as prediction_cli
from hmas_lab.sim.cli import COLUMNS, score_table
from hmas_lab.sim.systems import system_names
from hmas_loadgen.compare import compare_table, error_table
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.result import LoadResult
from hmas_loadgen.traces.registry import PUBLIC_TRACES
from hmas_loadgen.traces.statistics import TraceStatistics
from hmas_loadgen.traces_cli import statistics_table, trace_table
from tests.builders.registry import worker_heartbeat
from tests.builders.telemetry import engine_sample, worker_telemetry

WIDTH = 80
MODEL = "meta-llama/Llama-3.1-70B-Instruct-quantized.w8a8"
RUNS = [f"azure-2023-conversation-{system}-1.4" for system in ("vllm", "sglang", "hmas", "plugin")]


def rendered(picture: RenderableType) -> list[str]:
    console = Console(width=WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(picture)
    return captured.get().splitlines()


def run(name: str) -> LoadResult:
    records = tuple(
        RequestRecord(
            index=n, request_id=f"r{n}", tenant="", task=TaskType.QA, slo=Slo(1.0, 0.1), prompt_tokens=100,
            expected_output_tokens=2, scheduled_s=float(n), sent_s=float(n), end_s=n + 90.0,
            outcome=Outcome.FINISHED if n else Outcome.ENGINE_ERROR, status=200, output_tokens=2,
            first_token_s=n + 50.0, last_token_s=n + 60.0, error="" if n else "503 no_worker_is_ready",
            message=MODEL * 3,
        )
        for n in range(100)
    )  # fmt: skip
    return LoadResult(
        name=name,
        model=MODEL,
        offered_s=100.0,
        warmup_s=0.0,
        config={},
        started_unix_s=0.0,
        records=records,
        lag_p50_s=0.001,
        lag_p99_s=0.002,
        reasons=(),
    )


def top() -> RenderableType:
    model, worker = MeshView(), "hmas-worker-7d9f8b6c5-x2x4z"
    tail, counts = Tail(1, 12.34, 56.78), ("offered", "settled", "ok", "ttft_ok", "tpot_ok", "tokens_served")
    shares = (ShareView(name=MODEL, weight=1.0, **dict.fromkeys(counts, 1_234_567)),)
    sample = engine_sample(
        engine="engine-127.0.0.1:8001", running=256, waiting=1024, kv_usage=1.0, preemptions_total=12345, step_s=0.5,
        prefill_tokens_per_s=1e3, decode_tokens_per_s=1e2, n_run=1024, b_token=99999, utilisation=0.66, busy=0.97,
        b_saturated=0,
    )  # fmt: skip
    filled = {f.name: 1234.5 for f in fields(VShort)} | {"ttft": tail, "tpot": tail, "violation_rate": 1.0}
    model.short[MODEL] = VShort(**filled | {"pool": MODEL, "queued": 12345, "running": 1024, "mismatch": 12.34})  # type: ignore[arg-type]
    filled = {f.name: 1234.5 for f in fields(VLong)} | {"tasks": shares, "tenants": shares, "pool": MODEL}
    model.long[MODEL] = VLong(**filled)  # type: ignore[arg-type]
    model.hear(
        0.0,
        worker_heartbeat(
            worker,
            incarnation="i",
            pool=MODEL,
            queued=3,
            queued_tokens=900,
            running=2,
            max_queued_tokens=1000,
            backlog_s=1.5,
        ),
    )
    telemetry = worker_telemetry(
        worker, pool=MODEL, queued_count=12345, queued_tokens=900, topology=TopologyName.MAX_ON_TIME.value,
        control_expired=True, engines=(sample,),
    )  # fmt: skip
    model.hear(0.0, telemetry)
    model.changes.append((0.0, worker, "N_run 16 → 8, B_token 128 → 64: the engine's KV cache is nearly full"))
    return render_top(model, 1.0)


def calibration() -> RenderableType:
    cost, limits = StepCostModel(0.004, 2e-5, 2e-4, 1e-7), EngineLimits()
    points = [Measurement(f"p{n}", "prefill", 1, n, 0.003 + cost.step_s(n, 0, 0, 0.0)) for n in (16, 50, 500, 1500)]
    points += [
        Measurement(f"d{b}-{n}", "decode", b, n, cost.step_s(0, b, b * n, 0.0), b * n)
        for b in (1, 4, 16) for n in (50, 1500)
    ]  # fmt: skip
    made = calibrated(f"{MODEL}-gpu-node-17.cluster.internal", "", points, limits)
    return Group(plots(made), calibration_table(made))


SIM_ROW = ["1.000", "0.987", "1.000", "0.999", "123.45", "123456", "1234.56", "12345", "0.987"]
HOP: dict[str, Any] = dict.fromkeys(("us_per_token", "us_per_plain_request", "plain_per_s", "errors"), 12345) | {
    "name": "FastAPI + aiohttp", "ttft_p50_s": 0.1234567, "ttft_p99_s": 0.1987654, "saturated_tokens_per_s": 123456.0
}  # fmt: skip
KEY = TenantKey(tenant=MODEL, id="k-0123456789abcdef", name=MODEL, created="2026-11-23T07:17:42+00:00", digest=b"")
FINDING = Finding("service perception", "fail", f"http://127.0.0.1:18080/{MODEL}", "see the logs under " + "data/" * 20)
STATISTICS = dict.fromkeys((f.name for f in fields(TraceStatistics)), 1_048_576.0)
BENCHMARK = {"name": "load, llama3-8b-a100x1: TTFT p99 off the engine's own, at 100 requests/s and 64 streams",
             "value": 12345.678, "unit": "µs/request", "goal": "<= 40000", "met": True}  # fmt: skip
FIGURES = {"unseen_configuration_throughput": 123456.0}

TABLES: list[tuple[str, RenderableType, list[str]]] = [  # what it shows, and what must stand there in one piece
    ("sim run", score_table("mix, 1.4 λ* = 12.34 requests/s", [[s, *SIM_ROW] for s in system_names()]),
     [*SIM_ROW, *system_names()]),
    ("compare", comparison_table(MODEL, {s: [Replay(run(s), None)] * 3 for s in ("vLLM", "mesh", "mesh + plug-in")}),
     ["TTFT compliance", "0.00 req/s", "50000 ms"]),
    ("load compare", compare_table([run(name) for name in RUNS * 2]), ["Jain index of service", "10000.0", "50000"]),
    ("load errors", error_table(run("r")) or "", ["503 no_worker_is_ready"]),
    ("load traces list", trace_table(PUBLIC_TRACES.values()), list(PUBLIC_TRACES)),
    ("load traces stats", statistics_table(dict.fromkeys(RUNS, STATISTICS)), ["1.049e+06", *STATISTICS]),
    ("calibrate", calibration(), ["a pair of prefill tokens (c_pp)", "µs", "0 to 16 decoding sequences"]),
    ("doctor", findings_table({"this machine: hmas up": [FINDING]}), ["service perception", "fail"]),
    ("keys list", key_table([KEY]),
     ["k-0123456789abcdef", "2026-11-23T07:17:42+00:00"]),
    ("why", render_why({"request": MODEL * 3, "attempt": {"worker": "w" * 90}}), ["request", "worker"]),
    ("top", top(), ["1234.5  12345", "12.34/56.78", "12340/56780", "1234.5 s", "99999", "safe default", "1234567"]),
    ("eval prediction", prediction_cli.figure_table(MODEL, FIGURES), ["unseen_configuration_throughput", "1.235e+05"]),
    ("eval perception", perception_cli.figure_table({"version": MODEL * 2, "length": FIGURES}),
     ["length.unseen_configuration_throughput", "1.235e+05"]),
    ("benchmarks.run", table_of([BENCHMARK]), ["1.235e+04", "µs/request", "<= 40000", "yes"]),
    ("benchmarks.hop", hop.comparison([HOP]), ["FastAPI + aiohttp", "123.46 ms", "198.77 ms", "123456", "12345"]),
]  # fmt: skip


@pytest.mark.parametrize(("picture", "whole"), [case[1:] for case in TABLES], ids=[case[0] for case in TABLES])
def test_a_table_fits_a_terminal(picture: RenderableType, whole: list[str]) -> None:
    lines = rendered(picture)
    assert max(map(len, lines)) <= WIDTH
    assert not any("…" in line for line in lines)
    assert [text for text in whole if not any(text in line for line in lines)] == []


def test_the_columns_of_a_simulated_run_are_those_of_its_rows() -> None:
    assert len(COLUMNS) == len(SIM_ROW) + 1

"""`hmas top`: values in, picture out."""

from dataclasses import replace

from rich.console import Console

from hmas.contracts.control import (
    MIXED,
    AuditRecord,
    EngineClass,
    Layout,
    LayoutDecision,
)
from hmas.contracts.control import TopologyName as T
from hmas.contracts.job import JobRow
from hmas.contracts.registry import EngineInfo
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.mesh.top.view import render_top
from hmas.operator.mesh_view import CHANGES_KEPT, GAIN_KEPT_S, MAX_SHOWN_WORKERS, MeshView
from tests.builders.control import control_tuple, engine_control, topology_decision
from tests.builders.registry import worker_heartbeat
from tests.builders.telemetry import engine_sample, worker_telemetry

HEARTBEAT = worker_heartbeat(
    incarnation="i", queued=3, queued_tokens=900, running=2, max_queued_tokens=1000, backlog_s=1.5
)
SAMPLE = engine_sample(
    engine="e1", running=2, waiting=1, kv_usage=0.42, kv_capacity_tokens=1000, preemptions_total=5, step_s=0.02,
    prefill_tokens_per_s=1e3, decode_tokens_per_s=1e2, n_run=16, b_token=64, utilisation=0.6, busy=0.9, b_saturated=0,
)  # fmt: skip
TELEMETRY = worker_telemetry("w1", queued_count=3, queued_tokens=900, topology="edf", engines=(SAMPLE,), running=())
DECISION = topology_decision(T.SJF, reason="start")
CONTROL = control_tuple(engines=(engine_control(),), valid_for_s=5.0)


def picture(model: MeshView, now_s: float) -> str:
    console = Console(width=160, record=True, file=None)
    with console.capture() as captured:
        console.print(render_top(model, now_s))
    return captured.get()


REJECTED = AuditRecord(
    source="meta", pool="m", kind="rejected", decision="none", reason="not JSON", selector="llm", view_json="{}",
    epoch=1, seq=2,
)  # fmt: skip


def test_a_worker_is_shown_with_queue_topology_and_controls() -> None:
    model = MeshView()
    assert "waiting" in picture(model, 0.0)
    for value in (HEARTBEAT, TELEMETRY, DECISION, CONTROL):
        model.hear(10.0, value)
    shown = picture(model, 10.5)
    for word in ("w1", "e1", "edf", "16", "64", "42%", "ok"):
        assert word in shown
    assert "silent 10 s" in picture(model, 20.0)


def test_an_engine_that_is_suspected_is_not_shown_as_one_that_serves() -> None:
    model = MeshView()
    for changes, state in (
        ({}, "up"),
        ({"suspected": True}, "suspected"),
        ({"suspected": True, "asleep": True}, "asleep"),
        ({"suspected": True, "up": False}, "down"),
    ):
        model.hear(10.0, replace(TELEMETRY, engines=(replace(SAMPLE, **changes),)))  # type: ignore[arg-type]
        (line,) = [line for line in picture(model, 10.5).splitlines() if "e1" in line]
        assert line.split()[-1] == state


def test_requests_that_wait_for_a_sleeping_engine_are_told_beside_the_queue() -> None:
    model = MeshView()
    model.hear(10.0, HEARTBEAT)
    model.hear(10.0, replace(TELEMETRY, queued_count=7, queued_asleep=3))
    assert "7 (3 asleep)" in picture(model, 10.5)


def test_a_worker_without_an_engine_stands_by_and_does_not_drain() -> None:
    model = MeshView()
    info = EngineInfo(
        engine="e1", up=True, dialect="vllm", hardware="h", max_model_len=1, kv_capacity_tokens=1, block_size=1,
        max_num_seqs=1, endpoint="http://e:1",
    )  # fmt: skip
    for engines, word in (((), "stands by"), ((info,), "draining")):
        model.hear(10.0, replace(HEARTBEAT, draining=True, engines=engines))
        assert word in picture(model, 10.5)


def test_switches_and_tuple_changes_are_listed_repetitions_are_not() -> None:
    model = MeshView()
    for seq in range(3):
        model.hear(float(seq), replace(DECISION, seq=seq))
        model.hear(float(seq), replace(CONTROL, seq=seq))
    assert len(model.changes) == 1
    model.hear(5.0, replace(DECISION, topology=T.WFQ, seq=9, reason="unfair"))
    model.hear(6.0, replace(CONTROL, engines=(replace(CONTROL.engines[0], n_run=8),), seq=9))
    model.hear(7.0, REJECTED)
    told = replace(REJECTED, kind="outcome", decision="edf", reason="+5.0 points predicted, +3.0 observed", seq=3)
    model.hear(8.0, told)
    texts = [text for _, _, text in model.changes]
    assert texts[-1] == "outcome: edf (+5.0 points predicted, +3.0 observed)"
    assert "sjf → wfq" in texts[1]
    assert "N_run 16 → 8" in texts[2]
    assert "not JSON" in texts[3]
    assert "sjf → wfq" in picture(model, 8.0)


def test_what_is_kept_is_bounded() -> None:
    model = MeshView()
    for n in range(MAX_SHOWN_WORKERS + 10):
        model.hear(float(n), replace(HEARTBEAT, worker=f"w{n}"))
        model.hear(float(n), replace(DECISION, topology=T.EDF if n % 2 else T.SJF, seq=n))
    assert len(model.workers) == MAX_SHOWN_WORKERS
    assert len(model.changes) == CHANGES_KEPT
    assert "w0" not in model.workers


def test_classes_and_changes_of_the_layout_are_shown() -> None:
    layout = Layout((0.084,), (EngineClass("w1/e1", 0),))
    model = MeshView()
    decided = LayoutDecision(
        pool="m", layout=MIXED, epoch=1, seq=1, valid_for_s=15.0, reason="start", selector="pace"
    )  # fmt: skip
    for value in (HEARTBEAT, TELEMETRY, DECISION, decided):
        model.hear(10.0, value)
    assert "84 ms" not in picture(model, 10.5)
    model.hear(11.0, replace(decided, layout=layout, seq=2))
    model.hear(11.0, replace(HEARTBEAT, layout=layout))
    shown = picture(model, 11.5)
    assert "e1 (<= 84 ms)" in shown
    assert "layout mixed →" in shown
    assert model.layout("m") == layout
    model.hear(12.0, replace(DECISION, bypass=True))
    assert model.layout("m") == MIXED
    assert "→ mixed" in picture(model, 12.5)


def test_jobs_are_shown_once_gateways_told_some() -> None:
    model = MeshView()
    model.hear(0.0, HEARTBEAT)
    assert "jobs:" not in text_of(model)
    model.jobs = [
        JobRow(
            job=f"{n:016x}", tenant="acme", model="m", template="ab" * 8, calls=3, running=int(n == 0), failed=n,
            prompt_tokens=1000, cached_tokens=250, output_tokens=9, begun_age_s=10.0, quiet_s=0.0 if n == 0 else 4.0,
            busy_s=5.0, request_id="r",
        )
        for n in range(2)
    ]  # fmt: skip
    shown = text_of(model)
    assert "jobs: 2 lately, 1 running" in shown
    row = next(line.split() for line in shown.splitlines() if "abab" in line)
    assert row == ["ab" * 8, "acme", "2", "1", "3.0", "6.00", "6.00", "25", "%", "1"]


def text_of(model: MeshView) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(render_top(model, 1.0))
    return captured.get()


def test_a_pool_that_is_observed_has_no_topology_in_force_and_says_what_scheduling_would_bring() -> None:
    model = MeshView()
    for value in (replace(HEARTBEAT, observes=True), TELEMETRY, DECISION):
        model.hear(1.0, value)
    assert "observing, nothing waits (it would be edf)" in picture(model, 1.0)
    assert "as scheduled: not simulated yet" in picture(model, 1.0)
    model.hear(2.0, GAIN)
    shown = picture(model, 32.0)
    assert "on time: 76% as it was, 97% as scheduled (95% to 99%); 5 min, simulated 30 s ago" in shown
    model.hear(40.0, replace(GAIN, abstains="the simulation misses by 9 points"))
    assert "it cannot be said: the simulation misses by 9 points" in picture(model, 40.0)
    assert "not simulated yet" in picture(model, 40.0 + GAIN_KEPT_S + 1.0)
    model.hear(50.0, HEARTBEAT)
    assert "observing" not in picture(model, 50.0)
    assert "as scheduled" not in picture(model, 50.0)


GAIN = SchedulingGain(
    pool=HEARTBEAT.pool, window_s=300.0, requests=500, was=0.76, played=0.74, scheduled=0.97, low=0.95, high=0.99,
    engines=2, topology="edf",
)  # fmt: skip

"""`hmas top`: values in, picture out."""

from dataclasses import replace

from rich.console import Console

from hmas.contracts.control import AuditRecord, ControlTuple, EngineControl, Fence, Hints, TopologyDecision
from hmas.contracts.control import TopologyName as T
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.telemetry import EngineSample, WorkerTelemetry
from hmas.mesh.top.model import CHANGES_KEPT, MAX_WORKERS, TopModel
from hmas.mesh.top.view import render_top

HEARTBEAT = WorkerHeartbeat("w1", "i", "h:1", 1, "m", (), (), 3, 900, 2, 100, 1000, 1.5, False)
SAMPLE = EngineSample("e1", True, 2, 1, 0.42, 1000, 5, 0.02, 1e3, 1e2, 16, 64, 0.6, 0.9, 0)
TELEMETRY = WorkerTelemetry("w1", "m", 3, 900, "edf", False, False, (SAMPLE,), (), (), (), (), ())
DECISION = TopologyDecision("m", T.SJF, Hints(), False, 1, 1, 15.0, "start", "rules")
CONTROL = ControlTuple("w1", (EngineControl("e1", 16, 64, 1, 128, 1.0, 0.7, 0.9),), Fence("v"), 1, 1, 5.0)


def picture(model: TopModel, now_s: float) -> str:
    console = Console(width=160, record=True, file=None)
    with console.capture() as captured:
        console.print(render_top(model, now_s))
    return captured.get()


def test_a_worker_is_shown_with_queue_topology_and_controls() -> None:
    model = TopModel()
    assert "waiting" in picture(model, 0.0)
    for value in (HEARTBEAT, TELEMETRY, DECISION, CONTROL):
        model.hear(10.0, value)
    shown = picture(model, 10.5)
    for word in ("w1", "e1", "edf", "16", "64", "42%", "ok"):
        assert word in shown
    assert "silent 10 s" in picture(model, 20.0)


def test_switches_and_tuple_changes_are_listed_repetitions_are_not() -> None:
    model = TopModel()
    for seq in range(3):
        model.hear(float(seq), replace(DECISION, seq=seq))
        model.hear(float(seq), replace(CONTROL, seq=seq))
    assert len(model.changes) == 1
    model.hear(5.0, replace(DECISION, topology=T.WFQ, seq=9, reason="unfair"))
    model.hear(6.0, replace(CONTROL, engines=(replace(CONTROL.engines[0], n_run=8),), seq=9))
    model.hear(7.0, AuditRecord("meta", "m", "rejected", "none", "not JSON", "llm", "{}", 1, 2))
    texts = [text for _, _, text in model.changes]
    assert "sjf → wfq" in texts[1]
    assert "N_run 16 → 8" in texts[2]
    assert "not JSON" in texts[3]
    assert "sjf → wfq" in picture(model, 8.0)


def test_what_is_kept_is_bounded() -> None:
    model = TopModel()
    for n in range(MAX_WORKERS + 10):
        model.hear(float(n), replace(HEARTBEAT, worker=f"w{n}"))
        model.hear(float(n), replace(DECISION, topology=T.EDF if n % 2 else T.SJF, seq=n))
    assert len(model.workers) == MAX_WORKERS
    assert len(model.changes) == CHANGES_KEPT
    assert "w0" not in model.workers

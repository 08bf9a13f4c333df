"""Pace classes over several workers: requests go to the workers whose engines serve their class."""

from dataclasses import replace

from hmas.contracts.control import EngineClass, Layout
from hmas.contracts.execution import Annotate, Submit, Withdraw
from hmas.contracts.gateway import FromWorker, RequestAnnotated, StreamChanged, ToWorker
from hmas.contracts.job import PrefixChain
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.request import Slo
from hmas.gateway.agent import GatewayConfig
from tests.gateway.gateway_script import Mesh, annotation, heartbeat, load, run_ended, submits

SPLIT = Layout((0.1,), (EngineClass("w1/e1", 0), EngineClass("w2/e1", 1), EngineClass("w3/e1", 1)))
STRICT, LAX = Slo(2.0, 0.08), Slo(8.0, 0.15)


def laid_out(*workers: str, config: GatewayConfig | None = None) -> Mesh:
    mesh = Mesh(config=config)
    for worker in workers:
        mesh.play(HeartbeatReceived(heartbeat(worker, layout=SPLIT)), StreamChanged(worker, True))
    return mesh


def to(mesh: Mesh, name: str, slo: Slo, **changes: object) -> str:
    ((_, worker, _),) = submits([e for e in mesh.receive(name, slo=slo, **changes) if isinstance(e, ToWorker)])
    return worker


def test_each_class_goes_to_its_workers_and_there_to_the_least_loaded() -> None:
    mesh = laid_out("w1", "w2", "w3")
    assert [to(mesh, f"s{i}", STRICT) for i in range(3)] == ["w1"] * 3
    assert sorted(to(mesh, f"l{i}", LAX) for i in range(4)) == ["w2", "w2", "w3", "w3"]


def test_without_a_layout_the_least_loaded_of_all_is_chosen() -> None:
    mesh = Mesh("w1", "w2", "w3")
    assert sorted(to(mesh, f"s{i}", STRICT) for i in range(3)) == ["w1", "w2", "w3"]


def test_a_class_whose_workers_are_gone_is_served_by_the_others_at_once() -> None:
    mesh = laid_out("w1", "w2")
    mesh.play(HeartbeatReceived(heartbeat("w1", up=False, layout=SPLIT)))
    assert to(mesh, "s1", STRICT) == "w2"
    mesh.play(HeartbeatReceived(heartbeat("w1", layout=SPLIT)))
    assert to(mesh, "s2", STRICT) == "w1"
    mesh.play(StreamChanged("w1", False))
    assert to(mesh, "s3", STRICT) == "w2"


def test_tags_that_tell_another_class_send_the_request_there() -> None:
    mesh = laid_out("w1", "w2")
    assert to(mesh, "r1", STRICT, slo_stated=False) == "w1"
    note = annotation(slo=LAX)
    effects = mesh.play(RequestAnnotated("r1", note))
    told = [(e.worker, type(e.message).__name__) for e in effects if isinstance(e, ToWorker)]
    assert told == [("w1", "Withdraw"), ("w2", "Submit"), ("w2", "Annotate")]
    assert to(mesh, "r2", STRICT, slo_stated=False) == "w1"
    effects = mesh.play(RequestAnnotated("r2", annotation(slo=STRICT)))
    assert [type(e.message) for e in effects if isinstance(e, ToWorker)] == [Annotate]


def test_a_request_does_not_move_for_ever() -> None:
    mesh = laid_out("w1", "w2", config=GatewayConfig(gateway="g", max_attempts=2))
    to(mesh, "r1", STRICT, slo_stated=False)
    for slo in (LAX, STRICT, LAX, STRICT):
        effects = mesh.play(RequestAnnotated("r1", annotation(slo=slo)))
    assert not any(isinstance(e, ToWorker) and isinstance(e.message, Withdraw) for e in effects)


def test_an_imbalance_between_classes_moves_nothing_and_within_one_it_does() -> None:
    mesh = laid_out("w1", "w2", "w3")
    for i in range(8):
        to(mesh, f"l{i}", LAX)

    def backlog(**seconds: float) -> list[str]:
        moved = []
        for _ in range(30):
            for worker, backlog_s in seconds.items():
                beat = heartbeat(worker, layout=SPLIT, backlog_s=backlog_s, queued=4 if backlog_s else 0)
                mesh.play(HeartbeatReceived(beat))
            moved += [e.worker for e in mesh.tick(0.5) if isinstance(e, ToWorker) and isinstance(e.message, Withdraw)]
        return moved

    assert backlog(w1=0.0, w2=60.0, w3=60.0) == []
    assert set(backlog(w1=0.0, w2=60.0, w3=0.0)) == {"w2"}


def test_a_worker_whose_steps_are_too_slow_for_a_request_is_left_out_while_another_keeps_its_slo() -> None:
    mesh = Mesh("w1", "w2")
    mesh.play(FromWorker("w1", load(step_s=0.12)), FromWorker("w2", load(step_s=0.05)))
    assert [to(mesh, f"s{i}", STRICT) for i in range(3)] == ["w2"] * 3
    assert to(mesh, "l1", LAX) == "w1"
    assert to(mesh, "whole", replace(LAX, whole=True)) == "w1"
    mesh.play(FromWorker("w1", load(step_s=0.05)))
    assert to(mesh, "s4", STRICT) == "w1", "quick again, and less loaded"


def test_a_worker_that_computes_prompts_for_a_while_is_not_slow() -> None:
    mesh = Mesh("w1", "w2")

    def steps(seconds: int, step_s: float) -> None:
        for _ in range(seconds):
            for name in ("w1", "w2"):
                mesh.play(HeartbeatReceived(heartbeat(name)))
            mesh.play(FromWorker("w1", load(step_s=step_s)), FromWorker("w2", load(step_s=0.05, backlog_s=1.0)))
            mesh.tick(1.0)

    steps(5, 0.05)
    steps(3, 0.12)
    assert to(mesh, "s1", STRICT) == "w1"
    steps(30, 0.12)
    assert to(mesh, "s2", STRICT) == "w2"
    mesh.play(FromWorker("w1", load(step_s=0.0)))
    assert to(mesh, "s3", STRICT) == "w1", "nothing runs there"


def test_where_all_are_slow_none_is_left_out() -> None:
    mesh = Mesh("w1", "w2")
    mesh.play(FromWorker("w1", load(step_s=0.12)), FromWorker("w2", load(step_s=0.11)))
    assert {to(mesh, f"s{i}", STRICT) for i in range(4)} == {"w1", "w2"}


def test_a_quick_worker_with_a_far_longer_backlog_keeps_no_request_from_a_slow_one() -> None:
    mesh = Mesh("w1", "w2")
    mesh.play(FromWorker("w1", load(step_s=0.12, backlog_s=1.0)), FromWorker("w2", load(step_s=0.05, backlog_s=2.9)))
    assert to(mesh, "s1", STRICT) == "w2"
    mesh.play(FromWorker("w2", load(step_s=0.05, backlog_s=3.1)))  # the TTFT SLO is 2 s
    assert to(mesh, "s2", STRICT) == "w1"


def test_what_generates_nothing_has_no_pace() -> None:
    mesh = Mesh("w1", "w2")
    mesh.play(FromWorker("w1", load(step_s=0.12)), FromWorker("w2", load(step_s=0.05, backlog_s=1.0)))
    assert to(mesh, "p1", STRICT, max_tokens=0) == "w1"


def test_an_imbalance_moves_to_the_least_loaded_of_those_that_keep_the_slo() -> None:
    mesh = Mesh("w1", "w2", "w3")
    mesh.play(FromWorker("w2", load(step_s=0.12)), FromWorker("w3", load(step_s=0.12)))
    assert [to(mesh, f"s{i}", STRICT) for i in range(6)] == ["w1"] * 6
    mesh.play(FromWorker("w3", load(step_s=0.05)))

    moved: set[str] = set()
    for _ in range(20):
        for worker, backlog_s in (("w1", 60.0), ("w2", 1.0), ("w3", 2.5)):
            mesh.play(HeartbeatReceived(heartbeat(worker, backlog_s=backlog_s, queued=6 if worker == "w1" else 0)))
        sent = [e for e in mesh.tick(0.5) if isinstance(e, ToWorker)]
        moved |= {each.worker for each in sent if isinstance(each.message, Submit)}
    assert moved == {"w3"}, "w2 has less to do, and is too slow"


def test_tags_move_no_request_for_a_worker_that_has_no_room() -> None:
    mesh = Mesh("w1", "w2")
    mesh.play(FromWorker("w1", load(step_s=0.12)))
    assert to(mesh, "r1", LAX, slo_stated=False) == "w1"
    full = heartbeat("w2", max_queued=5, queued=5)
    mesh.play(HeartbeatReceived(full))
    effects = mesh.play(RequestAnnotated("r1", annotation(slo=STRICT)))
    assert [type(e.message) for e in effects if isinstance(e, ToWorker)] == [Annotate]


def test_a_quick_worker_without_an_engine_or_not_heard_of_keeps_no_request_from_a_slow_one() -> None:
    mesh = Mesh("w1", "w2")
    mesh.play(FromWorker("w1", load(step_s=0.12)), HeartbeatReceived(heartbeat("w2", up=False)))
    assert to(mesh, "s1", STRICT) == "w1"
    mesh.play(HeartbeatReceived(heartbeat("w2")))
    assert to(mesh, "s2", STRICT) == "w2"
    for _ in range(8):
        mesh.play(HeartbeatReceived(heartbeat("w1")))
        mesh.tick(0.5)
    assert to(mesh, "s3", STRICT) == "w1"


def test_what_a_worker_holds_of_a_prompt_does_not_make_up_for_steps_that_are_too_slow() -> None:
    mesh = Mesh("w1", "w2")
    chain = PrefixChain((1, 2), (4_000, 8_000), True, 0, 1)
    known = {"prompt_tokens": 8_000, "prefix": chain}
    for name in ("r1", "r2"):
        assert to(mesh, name, STRICT, **known) == "w1"
        mesh.play(run_ended(name, mesh.grant(name, worker="w1"), Outcome.FINISHED))
    mesh.play(FromWorker("w1", load(step_s=0.12)))
    assert to(mesh, "r3", STRICT, **known) == "w2"


def test_tags_that_tell_a_tighter_slo_take_a_request_from_a_slow_worker() -> None:
    mesh = Mesh("w1", "w2")
    mesh.play(FromWorker("w1", load(step_s=0.12)))
    assert to(mesh, "r1", LAX, slo_stated=False) == "w1"
    effects = mesh.play(RequestAnnotated("r1", annotation(slo=STRICT)))
    told = [(e.worker, type(e.message).__name__) for e in effects if isinstance(e, ToWorker)]
    assert told == [("w1", "Withdraw"), ("w2", "Submit"), ("w2", "Annotate")]

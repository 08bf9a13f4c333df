"""Scripts of fail open: what the gateway places by itself while workers are silent, and what it leaves alone."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.execution import Adopt, Annotate, Declined, Ended, EngineShare, Submit, Synced, Withdraw
from hmas.contracts.gateway import (
    ClientLeft,
    FirstTokenRelayed,
    FromWorker,
    GatewayEffect,
    RequestAnnotated,
    RunsProgressed,
    Settle,
    StartRun,
    StopRun,
    StreamChanged,
    ToWorker,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.gateway.agent.config import FailOpenConfig, GatewayConfig
from tests.gateway.gateway_script import Mesh, annotation, fails, grant, heartbeat, load, request, run_ended, submits


def silent(slots: int = 2, *, config: GatewayConfig | None = None, proven: bool = True) -> Mesh:
    """A mesh whose only worker has been silent for long. If `proven`, its engine shows life by a request `p`, which has
    one of the slots."""
    mesh = Mesh("w1", config=config)
    mesh.play(FromWorker("w1", load(EngineShare("e1", slots))), FromWorker("w1", load()))  # the last share counts
    if proven:
        mesh.receive("p")
        mesh.grant("p")
    mesh.play(StreamChanged("w1", False, 2.0))
    if proven:
        mesh.play(FirstTokenRelayed("p", 1), RunsProgressed((("p", 1),)))
    return mesh


def placed(effects: list[GatewayEffect]) -> list[str]:
    """The requests that the gateway runs by itself, all of them on the engine of w1."""
    starts = [e for e in effects if isinstance(e, StartRun)]
    assert all(start.grant is None and (start.worker, start.engine) == ("w1", "e1") for start in starts)
    return [start.request_id for start in starts]


def outcomes(effects: list[GatewayEffect]) -> list[tuple[str, Outcome]]:
    return [(e.request_id, e.outcome) for e in effects if isinstance(e, Settle)]


def test_bypass_begins_when_the_silence_is_long_enough() -> None:
    mesh = Mesh("w1")
    mesh.receive("r0")
    assert mesh.play(StreamChanged("w1", False, 0.5)) == []
    assert mesh.tick(1.4) == []
    assert mesh.tick(0.1) == [StartRun(request_id="r0", run=1, worker="w1", engine="e1", grant=None)]


def test_it_begins_at_once_if_the_silence_was_long_when_the_stream_ended() -> None:
    mesh = Mesh("w1")
    mesh.receive("r0")
    assert placed(mesh.play(StreamChanged("w1", False, 2.0))) == ["r0"]


def test_it_can_be_switched_off() -> None:
    mesh = silent(config=GatewayConfig(gateway="g", fail_open=FailOpenConfig(enabled=False)))
    mesh.receive()
    assert mesh.tick(9.9) == []
    assert outcomes(mesh.tick(0.1)) == [("r1", Outcome.NO_ENGINE)]


def test_slots_bound_it_and_the_rest_waits_without_impatience_oldest_first() -> None:
    mesh = silent(slots=2)  # `p` has one
    assert [placed(mesh.receive(f"r{i}")) for i in range(4)] == [["r0"], [], [], []]
    assert mesh.tick(100.0) == []
    assert placed(mesh.play(run_ended("r0", 2))) == ["r1"]
    assert placed(mesh.play(run_ended("p", 1))) == ["r2"]
    mesh.play(ClientLeft("r1"))
    assert placed(mesh.receive("r4")) == []  # `r3` is older
    assert placed(mesh.tick()) == ["r3"]
    effects = mesh.tick(1700.0)  # no request waits longer than it may take as a whole
    assert ("r4", Outcome.TIMED_OUT) not in outcomes(effects)
    assert ("r4", Outcome.TIMED_OUT) in outcomes(mesh.tick(100.0))


def test_without_a_share_it_is_a_quarter_of_what_the_engine_takes() -> None:
    mesh = Mesh("w1")
    mesh.receive("p")
    mesh.grant("p")
    mesh.play(StreamChanged("w1", False, 2.0), FirstTokenRelayed("p", 1))
    assert sum(bool(placed(mesh.receive(f"r{i}"))) for i in range(30)) == 64 // 4 - 1


def test_the_engine_with_the_smallest_part_of_its_slots_taken_is_next() -> None:
    mesh = Mesh()
    (engine,) = heartbeat().engines
    mesh.play(HeartbeatReceived(heartbeat("w1", engines=(engine, replace(engine, engine="e2")))))
    mesh.play(StreamChanged("w1", True), FromWorker("w1", load(EngineShare("e1", 2), EngineShare("e2", 4))))
    for i in range(2):
        mesh.receive(f"p{i}")
        mesh.play(FromWorker("w1", replace(grant(f"p{i}", i + 1), engine=f"e{i + 1}")))
    mesh.play(StreamChanged("w1", False, 2.0), *(FirstTokenRelayed(f"p{i}", i + 1) for i in range(2)))
    starts = [e for i in range(6) for e in mesh.receive(f"r{i}") if isinstance(e, StartRun)]
    assert [start.engine for start in starts] == ["e2", "e1", "e2", "e2"]


@pytest.mark.parametrize(
    "changes",
    [
        {"draining": True},
        {"up": False},
        {"wire_version": 1},
    ],
)
def test_not_every_silent_workers_engine_is_used(changes: dict[str, Any]) -> None:
    mesh = silent()
    mesh.play(HeartbeatReceived(heartbeat("w1", **changes)))
    assert mesh.receive() == []
    assert mesh.tick(5.0) == []


def test_an_engine_that_another_worker_has_taken_over_is_left_to_it() -> None:
    (engine,) = heartbeat().engines
    engines = (replace(engine, endpoint="http://e1"),)
    mesh = Mesh()
    mesh.play(HeartbeatReceived(heartbeat("old", engines=engines)), StreamChanged("old", True))
    mesh.play(StreamChanged("old", False, 2.0))
    mesh.play(HeartbeatReceived(heartbeat("new", engines=engines)), StreamChanged("new", True))
    assert submits(mesh.receive()) == [("r1", "new", 1)]
    assert mesh.tick(1.0) == []


def test_what_waits_at_live_workers_is_pulled_after_a_while_oldest_first() -> None:
    mesh = silent(slots=3)
    mesh.play(HeartbeatReceived(heartbeat("w2")), StreamChanged("w2", True))
    for request_id in ("r1", "r2", "r3"):
        assert submits(mesh.receive(request_id)) == [(request_id, "w2", 1)]
    mesh.grants = 0
    mesh.grant("r1", worker="w2")
    assert mesh.tick(0.05) == []
    assert submits(mesh.receive("r4")) == [("r4", "w2", 1)]
    assert mesh.tick(0.05) == [
        ToWorker("w2", Withdraw("r2", 1)),
        StartRun(request_id="r2", run=3, worker="w1", engine="e1", grant=None),
        ToWorker("w2", Withdraw("r3", 1)),
        StartRun(request_id="r3", run=4, worker="w1", engine="e1", grant=None),
    ]
    assert mesh.play(FromWorker("w2", grant("r2", 2))) == [ToWorker("w2", Declined("r2", 2))]
    assert mesh.tick(1.0) == []  # no slot is free for `r4`


def test_a_worker_that_is_back_adopts_and_counts() -> None:
    mesh = silent()
    note = annotation()
    mesh.receive("r1")
    mesh.receive("r2")
    mesh.play(FirstTokenRelayed("r1", 2), RunsProgressed((("r1", 3),)), RequestAnnotated("r1", note))
    _, adopt, synced, submit = mesh.play(StreamChanged("w1", True))
    adopted = Adopt(
        request=request("r1"), attempt=1, annotation=note, engine="e1", grant=0, output_tokens=3, granted_s=0.0,
        first_token_s=0.0,
    )  # fmt: skip
    assert adopt == ToWorker("w1", adopted)
    assert synced == ToWorker("w1", Synced())
    assert submit == ToWorker("w1", Submit(request=request("r2"), attempt=1))  # no worker had it before
    assert mesh.tick(5.0) == []
    assert mesh.play(RequestAnnotated("r1", note)) == [ToWorker("w1", Annotate("r1", 1, note))]
    ended, settle = mesh.play(run_ended("r1", 2))
    assert isinstance(ended, ToWorker)
    assert isinstance(ended.message, Ended)
    assert ended.message.grant == 0
    assert isinstance(settle, Settle)


def test_an_adopted_run_that_fails_waits_at_the_worker() -> None:
    mesh = silent()
    mesh.receive("r1")
    mesh.play(StreamChanged("w1", True))
    (ended,) = mesh.play(fails("r1", 2))
    assert isinstance(ended, ToWorker)
    assert isinstance(ended.message, Ended)
    assert ended.message.retryable
    mesh.grant("r1")


# --- engines that fail, too ---


def test_an_engine_without_a_sign_of_life_gets_one_request_at_a_time() -> None:
    mesh = silent(slots=8, proven=False)
    assert [placed(mesh.receive(f"r{i}")) for i in range(4)] == [["r0"], [], [], []]
    assert mesh.tick(3.9) == []
    assert placed(mesh.tick(0.1)) == ["r1"]
    mesh.play(FirstTokenRelayed("r0", 1))
    assert placed(mesh.tick()) == ["r2", "r3"]


def test_an_answer_without_a_stream_is_a_sign_of_life_and_a_client_that_leaves_is_none() -> None:
    mesh = silent(slots=8, proven=False)
    assert [placed(mesh.receive(f"r{i}", stream=False)) for i in range(4)] == [["r0"], [], [], []]
    assert mesh.play(ClientLeft("r0"))[0] == StopRun("r0", 1)
    assert placed(mesh.tick()) == ["r1"]
    assert placed(mesh.play(run_ended("r1", 2))) == ["r2"]
    assert placed(mesh.tick()) == ["r3"]


def test_an_engine_that_fails_is_left_alone_ever_longer() -> None:
    mesh = silent(proven=False)
    mesh.receive("r1")
    for run, pause_s in enumerate((1.0, 2.0), 1):
        assert mesh.play(fails("r1", run)) == []
        assert mesh.tick(pause_s - 0.1) == []
        assert placed(mesh.tick(0.1)) == ["r1"]
    assert outcomes(mesh.play(fails("r1", 3))) == [("r1", Outcome.ENGINE_ERROR)]
    assert placed(mesh.receive("r2")) == []
    assert mesh.tick(3.9) == []
    assert placed(mesh.tick(0.1)) == ["r2"]
    mesh.play(FirstTokenRelayed("r2", 4), run_ended("r2", 4))
    mesh.receive("r3")
    mesh.play(fails("r3", 5))
    assert placed(mesh.tick(1.0)) == ["r3"]


def test_a_granted_run_that_fails_is_none_of_the_requests_tries() -> None:
    mesh = Mesh("w1")
    mesh.receive("r1")
    mesh.grant("r1")
    mesh.play(StreamChanged("w1", False, 2.0))
    for run, pause_s in enumerate((1.0, 2.0, 4.0), 1):
        assert mesh.play(fails("r1", run)) == []
        assert placed(mesh.tick(pause_s)) == ["r1"]
    assert outcomes(mesh.play(fails("r1", 4))) == [("r1", Outcome.ENGINE_ERROR)]


def test_what_an_engine_showed_counts_until_its_worker_is_back() -> None:
    mesh = silent(slots=8)
    mesh.play(run_ended("p", 1), StreamChanged("w1", True), StreamChanged("w1", False, 2.0))
    assert [placed(mesh.receive(f"r{i}")) for i in range(2)] == [["r0"], []]


def test_runs_that_fail_together_are_one_failure_of_the_engine() -> None:
    mesh = silent(slots=4)
    for i in range(3):
        mesh.receive(f"r{i}")
    mesh.play(*(fails(f"r{i}", i + 2) for i in range(3)))
    assert placed(mesh.tick(1.0)) == ["r0"]


def test_what_failed_goes_to_a_worker_that_is_usable_and_is_not_pulled_for_ever() -> None:
    mesh = silent()
    mesh.receive("r1")
    mesh.play(HeartbeatReceived(heartbeat("w2")), StreamChanged("w2", True))
    assert submits(mesh.play(fails("r1", 2))) == [("r1", "w2", 2)]
    run = 2
    for attempt in (3, 5):
        run += 1
        effects = mesh.tick(100.0 if attempt == 3 else 200.0)
        assert placed(effects) == ["r1"]
        assert submits(mesh.play(fails("r1", run))) == [("r1", "w2", attempt + 1)]
    assert placed(mesh.tick(500.0)) == []


def test_an_engine_that_broke_an_answer_is_left_alone_too() -> None:
    mesh = silent()
    assert outcomes(mesh.play(run_ended("p", 1, Outcome.ENGINE_ERROR))) == [("p", Outcome.ENGINE_ERROR)]
    assert placed(mesh.receive("r1")) == []
    assert placed(mesh.tick(1.0)) == ["r1"]


def test_a_silent_worker_is_kept_longer_than_one_that_drained() -> None:
    mesh = silent(proven=False)
    mesh.tick(3000.0)
    assert placed(mesh.receive("r1")) == ["r1"]
    mesh.play(run_ended("r1", 1))
    mesh.tick(601.0)
    assert placed(mesh.receive("r2")) == []

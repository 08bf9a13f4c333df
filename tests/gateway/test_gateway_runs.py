"""Scripts of what workers, engines and clients do to requests that were granted or wait for a grant."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.execution import (
    Adopt,
    Annotate,
    Declined,
    Ended,
    FirstToken,
    Refusal,
    Stop,
    Submit,
    Synced,
    Withdraw,
)
from hmas.contracts.gateway import (
    ClientLeft,
    FirstTokenRelayed,
    FromWorker,
    GatewayDrainExpired,
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
from hmas.gateway.agent.config import GatewayConfig
from tests.gateway.gateway_script import Mesh, annotation, fails, grant, heartbeat, load, request, run_ended, submits


def refusal(outcome: Outcome, attempt: int = 1, retry_after_s: float | None = None) -> Refusal:
    return Refusal(
        request_id="r1", attempt=attempt, outcome=outcome, message=outcome.value, retry_after_s=retry_after_s
    )


def given_back(number: int = 1, **changes: Any) -> ToWorker:
    values: dict[str, Any] = {"outcome": Outcome.ENGINE_ERROR, "message": "engine_error", "retryable": True} | changes
    return ToWorker("w1", Ended(request_id="r1", grant=number, **values))


def settle(outcome: Outcome, **changes: Any) -> Settle:
    return Settle(**({"request_id": "r1", "outcome": outcome, "message": outcome.value, "output_tokens": 0} | changes))


def outcomes(effects: list[GatewayEffect]) -> list[tuple[str, Outcome]]:
    return [(e.request_id, e.outcome) for e in effects if isinstance(e, Settle)]


# --- grants ---


def test_only_the_live_attempt_of_a_waiting_request_is_carried_out() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    for late in (grant("nobody", 1), grant("r1", 2, attempt=2)):
        assert mesh.play(FromWorker("w1", late)) == [ToWorker("w1", Declined(late.request_id, late.grant))]
    assert mesh.play(FromWorker("w2", grant())) == [ToWorker("w2", Declined("r1", 1))]
    run = mesh.play(FromWorker("w1", grant("r1", 3)))
    assert isinstance(run[0], StartRun)
    assert mesh.play(FromWorker("w1", grant("r1", 4))) == [ToWorker("w1", Declined("r1", 4))]
    assert mesh.play(ClientLeft("r1"), FromWorker("w1", grant("r1", 5)))[-1] == ToWorker("w1", Declined("r1", 5))


def test_a_grant_that_comes_twice_runs_once() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    run = mesh.grant()
    assert mesh.play(FromWorker("w1", grant())) == []
    mesh.play(fails(run=run))
    assert mesh.play(FromWorker("w1", grant())) == [ToWorker("w1", Declined("r1", 1))]
    mesh.grant()  # the next one is carried out


def test_a_message_of_a_stream_that_is_closed_is_ignored() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", fail_open=False))
    mesh.receive()
    mesh.play(StreamChanged("w1", False))
    for late in (grant(), Stop("r1", 1, "down"), refusal(Outcome.NO_ENGINE), load()):
        assert mesh.play(FromWorker("w1", late)) == []


def test_a_run_that_failed_before_its_first_token_waits_at_its_worker_again() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    run = mesh.grant()
    assert mesh.play(fails(run=run, status=503, busy=True)) == [given_back(status=503, busy=True)]
    assert mesh.play(fails(run=run), FirstTokenRelayed("r1", run)) == []
    assert mesh.grant() == run + 1
    assert mesh.play(fails(run=run + 1, unreached=True)) == [given_back(2, unreached=True)]
    assert mesh.play(FromWorker("w1", refusal(Outcome.POOL_QUEUE_FULL, retry_after_s=7.0))) == [
        settle(Outcome.POOL_QUEUE_FULL, retry_after_s=7.0)
    ]


def test_nothing_moves_after_the_first_token() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    run = mesh.grant()
    mesh.play(FirstTokenRelayed("r1", run), RunsProgressed((("r1", 3),)))
    assert mesh.play(FromWorker("w1", Stop("r1", 1, "down"))) == []
    assert mesh.play(FirstTokenRelayed("r1", run)) == []
    failed = fails(run=run, output_tokens=3)
    assert mesh.play(failed) == [
        given_back(retryable=False, output_tokens=3),
        settle(Outcome.ENGINE_ERROR, output_tokens=3),
    ]


def test_a_plain_answer_has_no_first_token_and_may_be_stopped_to_its_end() -> None:
    mesh = Mesh("w1")
    mesh.receive(stream=False)
    run = mesh.grant()
    assert mesh.play(FirstTokenRelayed("r1", run)) == []
    assert mesh.play(FromWorker("w1", Stop("r1", 1, "down"))) == [StopRun("r1", run), given_back(message="down")]


def test_a_stop_gives_back_what_has_no_token() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    run = mesh.grant()
    assert mesh.play(FromWorker("w1", Stop("r1", 9, "other grant"))) == [ToWorker("w1", Declined("r1", 9))]
    stop = FromWorker("w1", Stop("r1", 1, "down"))
    assert mesh.play(stop) == [StopRun("r1", run), given_back(message="down")]
    assert mesh.play(stop) == [ToWorker("w1", Declined("r1", 1))]
    assert mesh.play(run_ended(run=run)) == []
    assert mesh.grant() == run + 1


@pytest.mark.parametrize("streaming", [False, True])
def test_a_client_that_leaves_ends_the_run(streaming: bool) -> None:
    mesh = Mesh("w1")
    mesh.receive()
    run = mesh.grant()
    if streaming:
        mesh.play(FirstTokenRelayed("r1", run), RunsProgressed((("r1", 4),)))
    why, tokens = "the client went away", 4 if streaming else 0
    assert mesh.play(ClientLeft("r1")) == [
        StopRun("r1", run),
        given_back(outcome=Outcome.CANCELLED, message=why, retryable=False, output_tokens=tokens),
        settle(Outcome.CANCELLED, message=why, output_tokens=tokens),
    ]
    assert mesh.play(run_ended(run=run)) == []


def test_a_run_ends_when_the_time_is_over_and_when_the_grace_is() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", request_timeout_s=5.0))
    mesh.receive("r0")
    mesh.grant("r0")
    effects = mesh.tick(5.0)
    assert effects[0] == StopRun("r0", 1)
    assert outcomes(effects) == [("r0", Outcome.TIMED_OUT)]
    mesh.receive("r1")
    mesh.grant("r1")
    effects = mesh.play(GatewayDrainExpired())
    assert effects[0] == StopRun("r1", 2)
    assert outcomes(effects) == [("r1", Outcome.DRAINING)]


# --- refusals ---


@pytest.mark.parametrize("outcome", [Outcome.ENGINE_ERROR, Outcome.NO_ENGINE, Outcome.DRAINING])
def test_what_a_worker_cannot_serve_goes_once_to_each_other_worker(outcome: Outcome) -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    note = annotation()
    mesh.play(RequestAnnotated("r1", note))
    first = FromWorker("w1", refusal(outcome))
    assert mesh.play(first) == [
        ToWorker("w2", Submit(request=request(), attempt=2, again=True)),
        ToWorker("w2", Annotate("r1", 2, note)),
    ]
    assert mesh.play(first, FromWorker("w2", refusal(outcome))) == []  # the one again, the other of another attempt
    assert mesh.play(FromWorker("w2", refusal(outcome, attempt=2))) == [settle(outcome)]


def test_other_refusals_are_final() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    assert mesh.play(FromWorker("w1", refusal(Outcome.NEVER_FITS))) == [settle(Outcome.NEVER_FITS)]
    assert mesh.play(FromWorker("w1", refusal(Outcome.NEVER_FITS))) == []


def test_a_refusal_of_a_running_request_is_too_late() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    mesh.grant()
    assert mesh.play(FromWorker("w1", refusal(Outcome.NO_ENGINE))) == []


def test_a_refused_request_waits_for_a_worker_whose_stream_is_broken_for_now_within_its_patience() -> None:
    mesh = Mesh("w1", "w2", config=GatewayConfig(gateway="g", fail_open=False))
    mesh.receive()
    mesh.play(StreamChanged("w2", False))
    assert mesh.play(FromWorker("w1", refusal(Outcome.NO_ENGINE))) == []
    mesh.now_s = 4.0
    mesh.play(StreamChanged("w1", False))
    assert mesh.play(StreamChanged("w1", True)) == [ToWorker("w1", Synced())]  # `w1` has refused it
    assert outcomes(mesh.tick(5.9)) == []
    assert outcomes(mesh.tick(0.1)) == [("r1", Outcome.NO_ENGINE)]


# --- streams and draining workers ---


def test_a_stream_opens_with_a_snapshot() -> None:
    mesh = Mesh("w1")
    note = annotation()
    for request_id in ("r1", "r2", "r3"):
        mesh.receive(request_id)
    mesh.play(RequestAnnotated("r1", note), RequestAnnotated("r3", note))
    run = mesh.grant("r2")
    mesh.now_s = 0.5
    mesh.grant("r3")
    mesh.play(FirstTokenRelayed("r2", run), RunsProgressed((("r2", 6),)))
    adopted = Adopt(
        request=request("r2"), attempt=1, annotation=None, engine="e1", grant=1, output_tokens=6, granted_s=0.0,
        first_token_s=0.5,
    )  # fmt: skip
    other = replace(
        adopted, request=request("r3"), annotation=note, grant=2, output_tokens=0, granted_s=0.5, first_token_s=None
    )
    assert mesh.play(StreamChanged("w1", True)) == [  # the old stream was not closed before
        ToWorker("w1", Submit(request=request("r1"), attempt=1, again=True)),
        ToWorker("w1", Annotate("r1", 1, note)),
        ToWorker("w1", adopted),
        ToWorker("w1", other),
        ToWorker("w1", Synced()),
    ]


def test_a_restarted_worker_counts_its_grants_from_one_again() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", fail_open=False))
    mesh.receive("r1")
    run = mesh.grant("r1")
    mesh.receive("r2")
    mesh.play(StreamChanged("w1", False))
    assert mesh.play(FirstTokenRelayed("r1", run)) == []
    adopt, synced, submit = mesh.play(StreamChanged("w1", True))
    assert isinstance(adopt, ToWorker)
    assert isinstance(adopt.message, Adopt)
    assert synced == ToWorker("w1", Synced())
    assert submit == ToWorker("w1", Submit(request=request("r2"), attempt=2, again=True))
    mesh.grants = 0
    mesh.grant("r2", attempt=2)
    assert outcomes(mesh.play(run_ended("r1", run), run_ended("r2", run + 1))) == [
        ("r1", Outcome.FINISHED),
        ("r2", Outcome.FINISHED),
    ]


def test_a_new_stream_in_place_of_one_that_was_not_closed_counts_grants_anew() -> None:
    mesh = Mesh("w1")
    mesh.receive("r1")
    mesh.receive("r2")
    mesh.grant("r1")
    mesh.play(StreamChanged("w1", True))
    mesh.grants = 0
    mesh.grant("r2")


def test_a_closed_stream_moves_what_waits_and_leaves_what_runs() -> None:
    mesh = Mesh("w1", "w2")
    for i in range(4):
        mesh.receive(f"r{i}")
    run = mesh.grant("r0")
    assert mesh.play(StreamChanged("w1", False)) == [
        ToWorker("w2", Submit(request=request("r2"), attempt=2, again=True))
    ]
    assert mesh.play(StreamChanged("w1", False)) == []
    assert submits(mesh.receive("r5")) == [("r5", "w2", 1)]
    assert mesh.play(RunsProgressed((("r0", 2),)), FirstTokenRelayed("r0", run)) == []
    assert outcomes(mesh.play(run_ended("r0", run))) == [("r0", Outcome.FINISHED)]


def test_a_run_that_fails_while_its_workers_stream_is_closed_goes_elsewhere() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    run = mesh.grant()
    mesh.play(StreamChanged("w1", False))
    assert submits(mesh.play(fails(run=run))) == [("r1", "w2", 2)]


def test_without_another_worker_what_waited_is_held_until_the_stream_is_open_again() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    assert mesh.play(StreamChanged("w1", False)) == []
    assert mesh.tick(1.9) == []
    assert mesh.play(StreamChanged("w1", True)) == [
        ToWorker("w1", Synced()),
        ToWorker("w1", Submit(request=request(), attempt=2, again=True)),
    ]


@pytest.mark.parametrize("by_heartbeat", [False, True])
def test_a_draining_worker_loses_what_waits_and_keeps_what_runs(by_heartbeat: bool) -> None:
    mesh = Mesh("w1", "w2")
    for request_id in ("r1", "r2", "r3"):
        mesh.receive(request_id)
    run = mesh.grant("r1")
    draining = (
        HeartbeatReceived(heartbeat("w1", draining=True)) if by_heartbeat else FromWorker("w1", load(draining=True))
    )
    assert mesh.play(draining) == [
        ToWorker("w1", Withdraw("r3", 1)),
        ToWorker("w2", Submit(request=request("r3"), attempt=2, again=True)),
    ]
    assert mesh.play(draining) == []
    assert mesh.play(FromWorker("w1", grant("r3", 2))) == [ToWorker("w1", Declined("r3", 2))]
    assert mesh.play(FirstTokenRelayed("r1", run)) == [ToWorker("w1", FirstToken("r1", 1))]


def test_a_run_that_fails_at_a_draining_worker_goes_elsewhere() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    run = mesh.grant()
    mesh.play(FromWorker("w1", load(draining=True)))
    assert mesh.play(fails(run=run)) == [
        given_back(),
        ToWorker("w1", Withdraw("r1", 1)),
        ToWorker("w2", Submit(request=request(), attempt=2, again=True)),
    ]


def test_what_waits_at_the_only_worker_is_held_when_it_drains() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    assert mesh.play(FromWorker("w1", load(draining=True))) == [ToWorker("w1", Withdraw("r1", 1))]
    mesh.play(StreamChanged("w1", False, 5.0))
    assert mesh.tick(9.9) == []  # a worker that drained is no reason for bypass
    assert outcomes(mesh.tick(0.1)) == [("r1", Outcome.NO_ENGINE)]


# --- balance ---


def imbalanced(config: GatewayConfig) -> Mesh:
    """w1 has four requests and much more work than w2, four checks long."""
    mesh = Mesh("w1", config=config)
    for i in range(4):
        mesh.receive(f"r{i}")
    mesh.play(StreamChanged("w2", True))
    for _ in range(3):
        mesh.now_s += 0.5
        mesh.play(HeartbeatReceived(heartbeat("w1", queued=4, backlog_s=40.0)), HeartbeatReceived(heartbeat("w2")))
        assert mesh.tick() == []
    mesh.now_s += 0.5
    return mesh


def moved(mesh: Mesh) -> list[str]:
    effects = mesh.tick()
    withdrawn = [(e.worker, e.message) for e in effects if isinstance(e, ToWorker) and isinstance(e.message, Withdraw)]
    sent = submits([e for e in effects if isinstance(e, ToWorker) and isinstance(e.message, Submit)])
    assert len(effects) == len(withdrawn) + len(sent)
    ids = [message.request_id for _, message in withdrawn]
    assert withdrawn == [("w1", Withdraw(i, 1)) for i in ids]
    assert sent == [(i, "w2", 2) for i in ids]
    return ids


def test_a_lasting_imbalance_moves_the_newest_few() -> None:
    mesh = imbalanced(GatewayConfig(gateway="g", rebalance_moves=2))
    assert moved(mesh) == ["r3", "r2"]
    assert moved(mesh) == []  # the next check is not due
    mesh.now_s += 0.5
    assert moved(mesh) == ["r1", "r0"]
    assert mesh.play(FromWorker("w1", grant("r3"))) == [ToWorker("w1", Declined("r3", 1))]


def test_no_more_than_half_the_difference_moves_even_if_nothing_new_is_reported() -> None:
    config = GatewayConfig(gateway="g", prior_tpot_s=0.05, rebalance_min_share=0.1)
    mesh = imbalanced(config)  # 10.1 s each, half of 40 s are due
    assert moved(mesh) == ["r3", "r2"]
    mesh.now_s += 0.5
    assert moved(mesh) == []


def test_granted_requests_are_not_moved() -> None:
    mesh = imbalanced(GatewayConfig(gateway="g"))
    for i in range(1, 4):
        mesh.grant(f"r{i}")
    assert moved(mesh) == ["r0"]


def test_balanced_workers_are_left_alone() -> None:
    mesh = imbalanced(GatewayConfig(gateway="g"))
    mesh.play(HeartbeatReceived(heartbeat("w2", backlog_s=30.0)))
    assert moved(mesh) == []


def test_a_request_that_was_moved_often_stays() -> None:
    assert moved(imbalanced(GatewayConfig(gateway="g", max_attempts=1))) == []


def test_a_request_is_not_moved_to_a_worker_that_refused_it() -> None:
    mesh = Mesh("w2", "w1")
    mesh.receive()
    assert submits(mesh.play(FromWorker("w2", refusal(Outcome.NO_ENGINE)))) == [("r1", "w1", 2)]
    for _ in range(5):
        mesh.play(HeartbeatReceived(heartbeat("w1", queued=4, backlog_s=40.0)), HeartbeatReceived(heartbeat("w2")))
        assert mesh.tick(0.5) == []

"""How requests end before their answer does, and what is taken at most."""

import pytest

from hmas.contracts.execution import Ended, Refusal, Submit, Withdraw
from hmas.contracts.gateway import (
    ClientLeft,
    FirstTokenRelayed,
    FromWorker,
    GatewayDrainExpired,
    KeysEnded,
    PublishGatewayTelemetry,
    Refuse,
    RequestReceived,
    RunHandedOver,
    RunsProgressed,
    Settle,
    StopRun,
    ToWorker,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.metrics import told_verdict
from tests.gateway.gateway_script import Mesh, load, request, submits


def test_the_bounds_of_the_gateway_are_the_most_that_it_takes() -> None:
    mesh = Mesh(config=GatewayConfig(gateway="g", max_held=2, max_requests=9, patience_s=7.0))
    assert [mesh.receive(name) for name in ("r1", "r2")] == [[], []]
    (refused,) = mesh.receive("r3")
    assert isinstance(refused, Refuse)
    assert (refused.outcome, refused.retry_after_s) == (Outcome.NO_ENGINE, 7.0)
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", max_requests=2, max_held_bytes=100))
    assert len(mesh.receive("r1")) == len(mesh.receive("r2")) == 1
    (refused,) = mesh.receive("r3")
    assert isinstance(refused, Refuse)
    assert refused.outcome is Outcome.POOL_QUEUE_FULL
    mesh.play(ClientLeft("r1"))
    assert len(mesh.play(RequestReceived(request("r4"), body_bytes=100))) == 1
    mesh.play(ClientLeft("r2"))
    (refused,) = mesh.play(RequestReceived(request("r5"), body_bytes=1))
    assert isinstance(refused, Refuse)
    assert "HMAS_MAX_HELD_BYTES" in refused.message


def test_a_client_that_leaves_takes_its_request_from_wherever_it_is() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive("waits")
    (waits_at,) = [entry.worker for entry in mesh.agent._state.ledger.by_arrival()]
    withdrawn, settled = mesh.play(ClientLeft("waits"))
    assert withdrawn == ToWorker(waits_at, Withdraw("waits", 1))
    assert isinstance(settled, Settle)
    assert settled.outcome is Outcome.CANCELLED
    (sent,) = mesh.receive("runs")
    assert isinstance(sent, ToWorker)
    run = mesh.grant("runs", worker=sent.worker)
    mesh.play(FirstTokenRelayed("runs", run))
    stopped, ended, settled = mesh.play(ClientLeft("runs"))
    assert stopped == StopRun("runs", run)
    assert isinstance(ended, ToWorker)
    assert isinstance(ended.message, Ended)
    assert (ended.worker, ended.message.outcome, ended.message.retryable) == (sent.worker, Outcome.CANCELLED, False)
    assert mesh.play(ClientLeft("runs")) == []
    state = mesh.agent._state
    assert (len(state.ledger), state.ledger.body_bytes) == (0, 0)
    assert [each.requests for each in state.router.usable("m")] == [0, 0]
    assert [each.sent_queued for each in state.router.usable("m")] == [0, 0]
    assert all(tenant.in_flight == tenant.waiting == 0 for tenant in state.tenants._states.values())


@pytest.mark.parametrize(
    ("first_s", "tokens", "left_s", "verdict"),
    [
        (0.5, 3, 0.75, "unjudged"),
        (0.5, 3, 1.25, "unjudged"),  # the fourth token is due now
        (0.5, 3, 1.5, "tpot_missed"),
        (2.5, 3, 2.5, "ttft_missed"),
        (None, 0, 2.0, "unjudged"),
        (None, 0, 2.25, "ttft_missed"),
    ],
)
def test_a_client_that_leaves_is_judged_by_what_it_had_seen_by_then(
    first_s: float | None, tokens: int, left_s: float, verdict: str
) -> None:
    mesh = Mesh("w1")
    mesh.receive("r1", slo=Slo(2.0, 0.25), slo_stated=True)
    run, began_s = mesh.grant("r1"), mesh.now_s
    if first_s is not None:
        mesh.now_s = began_s + first_s
        mesh.play(FirstTokenRelayed("r1", run), RunsProgressed((("r1", 1),)))
    mesh.now_s = began_s + left_s
    effects = mesh.play(ClientLeft("r1", tokens), GatewayDrainExpired())
    (settled,) = [row for e in effects if isinstance(e, PublishGatewayTelemetry) for row in e.telemetry.settled]
    assert (settled.outcome, settled.output_tokens, settled.withdrawn_s) == (Outcome.CANCELLED, tokens, left_s)
    assert told_verdict(settled) == verdict


def test_a_client_that_leaves_what_a_proxy_relays_is_judged_by_how_long_it_waited_here() -> None:
    mesh = Mesh("w1")
    mesh.receive("r1", slo=Slo(2.0, 0.25), slo_stated=True)
    run, began_s = mesh.grant("r1"), mesh.now_s
    mesh.play(RunHandedOver("r1", run))
    mesh.now_s = began_s + 60.0
    effects = mesh.play(ClientLeft("r1"), GatewayDrainExpired())
    (settled,) = [row for e in effects if isinstance(e, PublishGatewayTelemetry) for row in e.telemetry.settled]
    assert (settled.ttft_s, settled.withdrawn_s, told_verdict(settled)) == (0.0, 60.0, "unjudged")


def test_keys_that_ended_and_a_drain_end_each_of_their_requests_once() -> None:
    mesh = Mesh("w1")
    for name in ("r1", "r2", "r3", "r4"):
        mesh.receive(name)
    effects = mesh.play(KeysEnded(("r2", "unknown", "r3")))
    assert [(e.request_id, e.outcome) for e in effects if isinstance(e, Settle)] == [
        ("r2", Outcome.UNAUTHENTICATED), ("r3", Outcome.UNAUTHENTICATED),
    ]  # fmt: skip
    effects = mesh.play(GatewayDrainExpired())
    assert [(e.request_id, e.outcome) for e in effects if isinstance(e, Settle)] == [
        ("r1", Outcome.DRAINING), ("r4", Outcome.DRAINING),
    ]  # fmt: skip
    assert isinstance(effects[-1], PublishGatewayTelemetry)
    assert mesh.play(GatewayDrainExpired()) == []


def test_requests_time_out_at_their_instant_oldest_first() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", request_timeout_s=8.0))
    mesh.receive("r1")
    mesh.now_s = 1.0
    mesh.receive("r2")
    mesh.now_s = 7.75
    assert mesh.tick() == []
    assert [e.request_id for e in mesh.tick(0.25) if isinstance(e, Settle)] == ["r1"]
    assert [e.request_id for e in mesh.tick(1.0) if isinstance(e, Settle)] == ["r2"]


def test_a_request_whose_body_came_late_times_out_at_its_own_instant() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", request_timeout_s=100.0))
    mesh.now_s = 51.0
    arrivals = {"r1": 50.0, "late": 1.0, "later": 49.5, "r2": 51.0}
    for name, arrival_s in arrivals.items():
        mesh.play(RequestReceived(request(name, arrival_s=arrival_s)))
    ended: dict[str, float] = {}
    for now_s in (100.9, 101.0, 149.4, 149.5, 149.9, 150.0, 150.9, 151.0):
        mesh.now_s = now_s
        ended |= {e.request_id: now_s for e in mesh.tick() if isinstance(e, Settle)}
    assert ended == {name: arrival_s + 100.0 for name, arrival_s in arrivals.items()}


def test_a_worker_that_drains_gives_all_that_waits_to_another() -> None:
    mesh = Mesh("w1", "w2")
    for name in ("r1", "r2", "r3"):
        mesh.receive(name)
    at = {entry.request.id: entry.worker for entry in mesh.agent._state.ledger.by_arrival()}
    left = [name for name, place in at.items() if place == "w1"]
    effects = mesh.play(FromWorker("w1", load(draining=True)))
    withdrawn = [e.message for e in effects if isinstance(e, ToWorker) and isinstance(e.message, Withdraw)]
    assert withdrawn == [Withdraw(name, 1) for name in left]
    sent = [e for e in effects if isinstance(e, ToWorker) and isinstance(e.message, Submit)]
    assert submits(list(sent)) == [(name, "w2", 2) for name in left]


def test_a_worker_that_refused_a_request_is_charged_with_it_no_more() -> None:
    mesh = Mesh("w1", "w2")
    (sent,) = mesh.receive("r1")
    assert isinstance(sent, ToWorker)
    refusal = Refusal(request_id="r1", attempt=1, outcome=Outcome.NO_ENGINE, message="none", retry_after_s=1.0)
    effects = mesh.play(FromWorker(sent.worker, refusal))
    ((_, other, _),) = submits([each for each in effects if isinstance(each, ToWorker)])
    assert other != sent.worker
    state = mesh.agent._state
    held = {each.name: (each.requests, each.sent_queued, each.sent_tokens > 0) for each in state.router.usable("m")}
    assert held == {sent.worker: (0, 0, False), other: (1, 1, True)}


def test_a_request_goes_back_to_none_of_those_that_refused_it() -> None:
    mesh = Mesh("w1", "w2", "w3", config=GatewayConfig(gateway="g", max_attempts=9))
    (sent,) = mesh.receive("r1")
    assert isinstance(sent, ToWorker)
    tried = [sent.worker]
    for attempt in (1, 2, 3):
        refusal = Refusal(request_id="r1", attempt=attempt, outcome=Outcome.NO_ENGINE, message="none")
        effects = mesh.play(FromWorker(tried[-1], refusal))
        tried += [worker for _, worker, _ in submits([each for each in effects if isinstance(each, ToWorker)])]
    assert sorted(tried) == ["w1", "w2", "w3"]
    assert [each.outcome for each in effects if isinstance(each, Settle)] == [Outcome.NO_ENGINE]

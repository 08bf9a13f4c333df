"""Scripts of events, and the exact effects: acceptance, routing, refusals, limits, telemetry, time-outs."""

from dataclasses import replace

import pytest

from hmas.contracts.execution import Annotate, Ended, FirstToken, Progress, Started, Synced, Withdraw
from hmas.contracts.gateway import (
    ClassWeight,
    ClientLeft,
    FirstTokenRelayed,
    FromWorker,
    GatewayDrainExpired,
    GatewayDraining,
    GatewayEffect,
    GatewayTicked,
    PublishGatewayTelemetry,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    RunsProgressed,
    Settle,
    StartRun,
    StreamChanged,
    TenantLimits,
    TenantsChanged,
    ToWorker,
    ViewReceived,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.request import Slo, TaskType
from hmas.gateway.agent.config import FailOpenConfig, GatewayConfig
from tests.gateway.gateway_script import Mesh, annotation, grant, heartbeat, load, request, run_ended, submits, view


def finish(mesh: Mesh, request_id: str = "r1", output_tokens: int = 10) -> list[GatewayEffect]:
    """The worker grants a waiting request, which then runs to its end; returns the effects of the end."""
    return mesh.play(run_ended(request_id, mesh.grant(request_id), output_tokens=output_tokens))


def stream(mesh: Mesh, request_id: str) -> int:
    """The worker grants a waiting request, and its first token comes; returns the number of the run."""
    run = mesh.grant(request_id)
    mesh.play(FirstTokenRelayed(request_id, run))
    return run


def test_a_request_walks_through() -> None:
    mesh = Mesh("w1")
    assert submits(mesh.receive()) == [("r1", "w1", 1)]
    note = annotation()
    assert mesh.play(RequestAnnotated("r1", note)) == [ToWorker("w1", Annotate("r1", 1, note))]
    assert mesh.play(FromWorker("w1", grant(number=7, relegated=True))) == [
        StartRun(request_id="r1", run=1, worker="w1", engine="e1", grant=grant(number=7, relegated=True)),
        ToWorker("w1", Started("r1", 7)),
    ]
    mesh.now_s = 0.5
    assert mesh.play(FirstTokenRelayed("r1", 1)) == [ToWorker("w1", FirstToken("r1", 7))]
    assert mesh.play(RunsProgressed((("r1", 5), ("gone", 3)))) == [ToWorker("w1", Progress(("r1",), (5,)))]
    mesh.now_s = 1.5
    assert mesh.play(run_ended(cached_tokens=16)) == [
        ToWorker(
            "w1",
            Ended(
                request_id="r1", grant=7, outcome=Outcome.FINISHED, message="finished", status=200, output_tokens=10,
                prompt_tokens=790, cached_tokens=16,
            ),
        ),
        Settle(request_id="r1", outcome=Outcome.FINISHED, message="finished", output_tokens=10),
    ]  # fmt: skip
    assert mesh.agent.live == 0
    mesh.now_s = 2.0
    (published,) = mesh.play(GatewayTicked())
    assert isinstance(published, PublishGatewayTelemetry)
    (offered,) = published.telemetry.offered
    assert (offered.request_id, offered.age_s, offered.weight) == ("r1", 2.0, 1.0)
    (settled,) = published.telemetry.settled
    assert (settled.ttft_s, settled.tpot_s, settled.last_token_s, settled.age_s) == (0.5, 0.05, 1.5, 0.5)
    assert (settled.task, settled.prompt_tokens, settled.predicted_output_tokens) == (TaskType.QA, 790, 100.0)
    assert settled.relegated
    assert mesh.play(run_ended(), ClientLeft("r1"), FirstTokenRelayed("r1", 1), RunsProgressed((("r1", 6),))) == []


def test_a_burst_over_the_bound_on_bodies_is_refused_and_counted_as_offered() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", max_held_bytes=1000))
    burst = [mesh.play(RequestReceived(request(f"r{i}"), body_bytes=400)) for i in range(4)]
    sent, refused = [f"r{i}" for i in range(2)], [f"r{i}" for i in range(2, 4)]
    assert [submits(effects) for effects in burst[:2]] == [[(request_id, "w1", 1)] for request_id in sent]
    for request_id, effects in zip(refused, burst[2:], strict=True):
        (refusal,) = effects
        assert isinstance(refusal, Refuse)
        assert (refusal.request_id, refusal.outcome) == (request_id, Outcome.POOL_QUEUE_FULL)
        assert refusal.retry_after_s is not None
    stream(mesh, "r0")
    assert submits(mesh.play(RequestReceived(request("r4"), body_bytes=600))) == [("r4", "w1", 1)]
    finish(mesh, "r1")
    finish(mesh, "r4")
    assert submits(mesh.play(RequestReceived(request("r5"), body_bytes=1000))) == [("r5", "w1", 1)]
    mesh.now_s = 1.0
    (published,) = mesh.play(GatewayTicked())
    assert isinstance(published, PublishGatewayTelemetry)
    assert [each.request_id for each in published.telemetry.offered] == [*sent, *refused, "r4", "r5"]
    assert [s.request_id for s in published.telemetry.settled if s.outcome is Outcome.POOL_QUEUE_FULL] == refused


def test_a_live_id_received_again_is_a_bug() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    with pytest.raises(ValueError, match="in use"):
        mesh.receive()


def test_the_least_predicted_backlog_counts_what_was_sent_since() -> None:
    mesh = Mesh("w1", "w2", "w3")
    workers = [worker for i in range(6) for _, worker, _ in submits(mesh.receive(f"r{i}"))]
    assert workers == ["w1", "w2", "w3"] * 2
    mesh.play(
        FromWorker("w1", load(running=1, backlog_s=50.0)),
        HeartbeatReceived(heartbeat("w2", backlog_s=40.0)),
    )
    assert submits(mesh.receive("r6")) == [("r6", "w3", 1)]


def test_an_annotation_changes_the_backlog() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive("r1")
    mesh.receive("r2")
    mesh.play(RequestAnnotated("r1", annotation(10_000.0)), RequestAnnotated("r2", annotation(1.0)))
    assert [submits(mesh.receive(f"s{i}")) for i in range(3)] == [[(f"s{i}", "w2", 1)] for i in range(3)]


def test_an_annotation_goes_on_with_the_weight_of_its_type() -> None:
    """As the tenants file says when the annotation comes; a type that it does not name has none."""
    mesh = Mesh("w1")
    note = annotation(1.0)
    for number, classes in enumerate(((), (ClassWeight(note.tags.task, 3.0),), ())):
        mesh.play(TenantsChanged((), classes))
        mesh.receive(f"r{number}")
        (told,) = [e.message for e in mesh.play(RequestAnnotated(f"r{number}", note)) if isinstance(e, ToWorker)]
        assert isinstance(told, Annotate)
        assert told.annotation == replace(note, utility=3.0 if classes else None)


def test_workers_without_engines_come_last() -> None:
    mesh = Mesh()
    mesh.play(HeartbeatReceived(heartbeat("w1", up=False)), StreamChanged("w1", True))
    mesh.play(HeartbeatReceived(heartbeat("w2", backlog_s=30.0)), StreamChanged("w2", True))
    assert submits(mesh.receive()) == [("r1", "w2", 1)]
    mesh.play(StreamChanged("w2", False))
    assert submits(mesh.receive("r2")) == [("r2", "w1", 1)]


def test_a_worker_of_another_wire_version_gets_nothing() -> None:
    mesh = Mesh()
    mesh.play(HeartbeatReceived(heartbeat("w1", wire_version=99)), StreamChanged("w1", True))
    assert mesh.receive() == []


def test_without_a_worker_a_request_is_held_for_the_patience() -> None:
    mesh = Mesh(config=GatewayConfig(gateway="g", fail_open=FailOpenConfig(enabled=False)))
    mesh.play(HeartbeatReceived(heartbeat("w1")))
    assert mesh.receive() == []
    mesh.now_s = 9.9
    assert not any(isinstance(e, Settle) for e in mesh.play(GatewayTicked()))
    mesh.now_s = 10.0
    settles = [e for e in mesh.play(GatewayTicked()) if isinstance(e, Settle)]
    assert settles == [
        Settle(
            request_id="r1",
            outcome=Outcome.NO_ENGINE,
            message="no worker served the model `m` within 10 s: try again later",
            output_tokens=0,
            retry_after_s=10.0,
        )
    ]


def test_a_held_request_is_offered_under_the_pool_its_alias_turns_out_to_be() -> None:
    mesh = Mesh()
    assert mesh.receive(model="alias") == []
    mesh.play(HeartbeatReceived(heartbeat("w1")))
    synced, *after = mesh.play(StreamChanged("w1", True))
    assert synced == ToWorker("w1", Synced())
    assert submits(after) == [("r1", "w1", 1)]
    finish(mesh)
    assert [s.request_id for s in mesh.settled()] == ["r1"]


def test_a_model_nobody_knows_is_refused_once_the_mesh_is_known() -> None:
    mesh = Mesh("w1")
    (refuse,) = mesh.receive(model="other")
    assert refuse == Refuse(
        request_id="r1",
        outcome=Outcome.UNKNOWN_MODEL,
        message="the model `other` does not exist: GET /v1/models lists those that do",
        retry_after_s=None,
        predicted_ttft_s=None,
        estimated_wait_s=None,
    )
    assert mesh.settled() == []


def test_held_requests_are_bounded() -> None:
    mesh = Mesh(config=GatewayConfig(gateway="g", max_held=1))
    mesh.receive("r1")
    (refuse,) = mesh.receive("r2")
    assert isinstance(refuse, Refuse)
    assert (refuse.outcome, refuse.retry_after_s) == (Outcome.NO_ENGINE, 10.0)


def test_the_pools_bounds_refuse_with_a_computed_retry_and_settle_in_telemetry() -> None:
    mesh = Mesh()
    full = heartbeat("w1", queued=98, max_queued=100, backlog_s=3.0)
    mesh.play(HeartbeatReceived(full), StreamChanged("w1", True))
    mesh.receive("r1")
    mesh.receive("r2")
    mesh.play(ViewReceived(view(settled_rps=4.0)))
    (refuse,) = mesh.receive("r3")
    assert refuse == Refuse(
        request_id="r3",
        outcome=Outcome.POOL_QUEUE_FULL,
        message="the queue of the model `m` or of the gateway is full: try again later",
        retry_after_s=12.5,
        predicted_ttft_s=25.1,
        estimated_wait_s=25.0,
    )
    assert [(s.request_id, s.outcome) for s in mesh.settled()] == [("r3", Outcome.POOL_QUEUE_FULL)]


def test_without_a_fresh_view_the_backlog_tells_the_wait() -> None:
    mesh = Mesh()
    mesh.play(HeartbeatReceived(heartbeat("w1", queued_tokens=999_500, backlog_s=9.0)), StreamChanged("w1", True))
    mesh.play(ViewReceived(view(settled_rps=0.0)))
    (refuse,) = mesh.receive()
    assert isinstance(refuse, Refuse)
    assert (refuse.outcome, refuse.retry_after_s, refuse.estimated_wait_s) == (Outcome.POOL_QUEUE_FULL, 4.5, 9.0)


def test_started_requests_leave_the_count_of_the_queue() -> None:
    mesh = Mesh()
    mesh.play(HeartbeatReceived(heartbeat("w1", max_queued=1)), StreamChanged("w1", True))
    mesh.receive("r1")
    mesh.grant("r1")
    assert submits(mesh.receive("r2")) == [("r2", "w1", 1)]
    (refuse,) = mesh.receive("r3")
    assert isinstance(refuse, Refuse)


def test_granted_requests_leave_the_reported_queue_too() -> None:
    mesh = Mesh()
    mesh.play(HeartbeatReceived(heartbeat("w1", max_queued=1)), StreamChanged("w1", True))
    mesh.receive("r1")
    mesh.now_s = 1.0
    mesh.play(FromWorker("w1", load(queued=1, queued_tokens=800)))
    assert isinstance(mesh.receive("r2")[0], Refuse)
    mesh.grant("r1")
    assert submits(mesh.receive("r3")) == [("r3", "w1", 1)]


def refused(mesh: Mesh, request_id: str) -> tuple[Outcome, float | None]:
    (refuse,) = mesh.receive(request_id)
    assert isinstance(refuse, Refuse)
    return refuse.outcome, refuse.retry_after_s


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (TenantLimits(tenant="acme", requests_per_min=2), (Outcome.TENANT_REQUEST_RATE, 30.0)),
        (TenantLimits(tenant="acme", tokens_per_min=1600), (Outcome.TENANT_TOKEN_RATE, 30.0)),
        (TenantLimits(tenant="acme", max_in_flight=2), (Outcome.TENANT_IN_FLIGHT, 4.1)),
        (TenantLimits(tenant="acme", max_queued=2), (Outcome.TENANT_QUEUE_FULL, 4.1)),
    ],
)
def test_tenant_bounds(limits: TenantLimits, expected: tuple[Outcome, float]) -> None:
    mesh = Mesh("w1")
    mesh.play(TenantsChanged((limits,)))
    mesh.receive("r1")
    mesh.receive("r2")
    assert refused(mesh, "r3") == expected
    assert submits(mesh.receive("r4", tenant="other")) == [("r4", "w1", 1)]
    mesh.play(TenantsChanged(()))
    assert submits(mesh.receive("r5")) == [("r5", "w1", 1)]


def test_bounds_on_requests_are_freed_again() -> None:
    mesh = Mesh("w1")
    mesh.play(TenantsChanged((TenantLimits(tenant="acme", max_in_flight=1, max_queued=1),)))
    mesh.receive("r1")
    run = stream(mesh, "r1")
    assert refused(mesh, "r2")[0] is Outcome.TENANT_IN_FLIGHT
    mesh.play(run_ended("r1", run))
    assert submits(mesh.receive("r3")) == [("r3", "w1", 1)]
    assert mesh.play(ClientLeft("r3")) == [
        ToWorker("w1", Withdraw("r3", 1)),
        Settle(request_id="r3", outcome=Outcome.CANCELLED, message="the client went away", output_tokens=0),
    ]
    assert submits(mesh.receive("r4")) == [("r4", "w1", 1)]


def test_an_answers_tokens_are_charged_when_it_ends() -> None:
    mesh = Mesh("w1")
    mesh.play(TenantsChanged((TenantLimits(tenant="acme", tokens_per_min=6000),)))
    mesh.receive("r1")
    finish(mesh, "r1", output_tokens=6000 - 790)
    outcome, wait_s = refused(mesh, "r2")
    assert (outcome, wait_s) == (Outcome.TENANT_TOKEN_RATE, 8.0)  # 800 tokens at 100 a second
    mesh.now_s = 8.0
    assert submits(mesh.receive("r3")) == [("r3", "w1", 1)]


def test_a_held_request_that_is_left_needs_no_cancel() -> None:
    mesh = Mesh()
    mesh.receive()
    assert mesh.play(ClientLeft("r1")) == [
        Settle(request_id="r1", outcome=Outcome.CANCELLED, message="the client went away", output_tokens=0)
    ]


def test_a_request_times_out() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", request_timeout_s=60.0))
    mesh.receive("r1")
    mesh.now_s = 30.0
    mesh.receive("r2")
    mesh.now_s = 60.0
    effects = [e for e in mesh.play(GatewayTicked()) if not isinstance(e, PublishGatewayTelemetry)]
    assert effects == [
        ToWorker("w1", Withdraw("r1", 1)),
        Settle(
            request_id="r1",
            outcome=Outcome.TIMED_OUT,
            message="the answer was not complete within 60 s (HMAS_REQUEST_TIMEOUT_S)",
            output_tokens=0,
        ),
    ]


def test_draining_refuses_new_requests_and_ends_the_rest_when_the_grace_is_over() -> None:
    mesh = Mesh("w1")
    mesh.receive("r1")
    mesh.play(GatewayDraining())
    (refuse,) = mesh.receive("r2")
    assert isinstance(refuse, Refuse)
    assert refuse.outcome is Outcome.DRAINING
    cancel, settle, published = mesh.play(GatewayDrainExpired())
    assert cancel == ToWorker("w1", Withdraw("r1", 1))
    assert isinstance(settle, Settle)
    assert settle.outcome is Outcome.DRAINING
    assert isinstance(published, PublishGatewayTelemetry)
    assert len(published.telemetry.settled) == 2


def test_a_full_batch_of_telemetry_is_sent_at_once() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", telemetry_events=4))
    effects = [e for i in range(4) for e in mesh.receive(f"r{i}")]
    (published,) = [e for e in effects if isinstance(e, PublishGatewayTelemetry)]
    assert [o.request_id for o in published.telemetry.offered] == ["r0", "r1", "r2", "r3"]


@pytest.mark.parametrize("stated", [True, False])
def test_the_slo_judged_is_the_stated_one_else_the_task_types(stated: bool) -> None:
    mesh = Mesh("w1")
    own, tagged = Slo(2.0, 0.1, None, True), Slo(4.0, 0.07)
    mesh.receive(slo=own, slo_stated=stated, stream=False)
    mesh.play(RequestAnnotated("r1", annotation(slo=tagged)))
    run = mesh.grant()
    assert mesh.play(FirstTokenRelayed("r1", run)) == []
    mesh.play(run_ended(run=run))
    (settled,) = mesh.settled()
    assert settled.slo == (own if stated else replace(tagged, whole=True))
    assert not settled.relegated
    assert settled.ttft_s is None  # a plain answer has no first token of its own

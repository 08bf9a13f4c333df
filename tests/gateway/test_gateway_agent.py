"""Scripts of events, and the exact effects."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.gateway import (
    AttemptHandedBack,
    ClientLeft,
    FirstTokenRelayed,
    GatewayDrainExpired,
    GatewayDraining,
    GatewayEffect,
    GatewayEvent,
    GatewayTicked,
    LoadReported,
    PublishGatewayTelemetry,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    SendAnnotate,
    SendCancel,
    SendRecall,
    SendSubmit,
    Settle,
    StreamChanged,
    TenantLimits,
    TenantsChanged,
    ViewReceived,
    WorkerVanished,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import RequestSettled
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig
from tests.gateway.gateway_script import annotation, concluded, heartbeat, request, view


class Mesh:
    """An agent and a clock."""

    def __init__(self, *workers: str, config: GatewayConfig | None = None) -> None:
        self.agent = GatewayAgent(config or GatewayConfig(gateway="g"))
        self.now_s = 0.0
        for worker in workers:
            self.play(HeartbeatReceived(heartbeat(worker)), StreamChanged(worker, True))

    def play(self, *events: GatewayEvent) -> list[GatewayEffect]:
        return [effect for event in events for effect in self.agent.step(self.now_s, event)]

    def receive(self, request_id: str = "r1", **changes: object) -> list[GatewayEffect]:
        return self.play(RequestReceived(request(request_id, arrival_s=self.now_s, **changes)))

    def settled(self, wait_s: float = 0.2) -> list[RequestSettled]:
        self.now_s += wait_s
        effects = self.play(GatewayTicked())
        return [s for e in effects if isinstance(e, PublishGatewayTelemetry) for s in e.telemetry.settled]


def test_a_request_walks_through() -> None:
    mesh = Mesh("w1")
    assert mesh.receive() == [SendSubmit("r1", "w1", 1)]
    note = annotation()
    assert mesh.play(RequestAnnotated("r1", note)) == [SendAnnotate("r1", "w1", 1, note)]
    mesh.now_s = 0.5
    assert mesh.play(FirstTokenRelayed("r1", 1)) == []
    mesh.now_s = 1.5
    assert mesh.play(concluded()) == [
        Settle(request_id="r1", outcome=Outcome.FINISHED, message="finished", output_tokens=10)
    ]
    assert mesh.agent.live == 0
    mesh.now_s = 2.0
    (published,) = mesh.play(GatewayTicked())
    assert isinstance(published, PublishGatewayTelemetry)
    (offered,) = published.telemetry.offered
    assert (offered.request_id, offered.age_s, offered.weight) == ("r1", 2.0, 1.0)
    (settled,) = published.telemetry.settled
    assert (settled.ttft_s, settled.tpot_s, settled.last_token_s, settled.age_s) == (0.5, 0.05, 1.5, 0.5)
    assert (settled.task, settled.prompt_tokens, settled.predicted_output_tokens) == (TaskType.QA, 790, 100.0)
    assert mesh.play(concluded(), ClientLeft("r1"), FirstTokenRelayed("r1", 1)) == []


def test_a_burst_over_the_bound_on_bodies_is_refused_and_counted_as_offered() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", max_held_bytes=1000))
    burst = [mesh.play(RequestReceived(request(f"r{i}"), body_bytes=400)) for i in range(4)]
    sent, refused = [f"r{i}" for i in range(2)], [f"r{i}" for i in range(2, 4)]
    assert burst[:2] == [[SendSubmit(request_id, "w1", 1)] for request_id in sent]
    for request_id, effects in zip(refused, burst[2:], strict=True):
        (refusal,) = effects
        assert isinstance(refusal, Refuse)
        assert (refusal.request_id, refusal.outcome) == (request_id, Outcome.POOL_QUEUE_FULL)
        assert refusal.retry_after_s is not None
    assert mesh.play(FirstTokenRelayed("r0", 1)) == []
    assert mesh.play(RequestReceived(request("r4"), body_bytes=600)) == [SendSubmit("r4", "w1", 1)]
    mesh.play(concluded("r1"), concluded("r4"))
    assert mesh.play(RequestReceived(request("r5"), body_bytes=1000)) == [SendSubmit("r5", "w1", 1)]
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
    workers = [e.worker for i in range(6) for e in mesh.receive(f"r{i}") if isinstance(e, SendSubmit)]
    assert workers == ["w1", "w2", "w3"] * 2
    mesh.play(
        LoadReported(worker="w1", queued=0, queued_tokens=0, running=1, backlog_s=50.0, draining=False),
        HeartbeatReceived(heartbeat("w2", backlog_s=40.0)),
    )
    assert mesh.receive("r6") == [SendSubmit("r6", "w3", 1)]


def test_an_annotation_changes_the_backlog() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive("r1")
    mesh.receive("r2")
    mesh.play(RequestAnnotated("r1", annotation(10_000.0)), RequestAnnotated("r2", annotation(1.0)))
    assert [mesh.receive(f"s{i}") for i in range(3)] == [[SendSubmit(f"s{i}", "w2", 1)] for i in range(3)]


def test_workers_without_engines_come_last() -> None:
    mesh = Mesh()
    mesh.play(HeartbeatReceived(heartbeat("w1", up=False)), StreamChanged("w1", True))
    mesh.play(HeartbeatReceived(heartbeat("w2", backlog_s=30.0)), StreamChanged("w2", True))
    assert mesh.receive() == [SendSubmit("r1", "w2", 1)]
    mesh.play(StreamChanged("w2", False))
    assert mesh.receive("r2") == [SendSubmit("r2", "w1", 1)]


def test_a_worker_of_another_wire_version_gets_nothing() -> None:
    mesh = Mesh()
    mesh.play(HeartbeatReceived(heartbeat("w1", wire_version=99)), StreamChanged("w1", True))
    assert mesh.receive() == []


@pytest.mark.parametrize("outcome", [Outcome.WORKER_LOST, Outcome.ENGINE_ERROR, Outcome.NO_ENGINE, Outcome.DRAINING])
def test_a_loss_before_the_first_token_moves_once_per_other_worker(outcome: Outcome) -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    note = annotation()
    mesh.play(RequestAnnotated("r1", note))
    assert mesh.play(concluded(outcome=outcome)) == [SendSubmit("r1", "w2", 2), SendAnnotate("r1", "w2", 2, note)]
    assert mesh.play(concluded(outcome=Outcome.FINISHED)) == []  # the old attempt
    assert mesh.play(concluded(attempt=2, outcome=outcome)) == [
        Settle(request_id="r1", outcome=outcome, message=outcome.value, output_tokens=10)
    ]


def test_a_loss_after_the_first_token_is_an_error() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    mesh.play(FirstTokenRelayed("r1", 1))
    (settle,) = mesh.play(WorkerVanished("w1", "killed"))
    assert isinstance(settle, Settle)
    assert settle.outcome is Outcome.WORKER_LOST
    assert "killed" in settle.message
    assert mesh.settled()[0].ttft_s == 0.0


def test_a_vanished_worker_loses_all_it_had_and_may_come_back() -> None:
    mesh = Mesh("w1", "w2")
    for i in range(4):
        mesh.receive(f"r{i}")
    assert mesh.play(WorkerVanished("w1", "gone")) == [SendSubmit("r0", "w2", 2), SendSubmit("r2", "w2", 2)]
    mesh.play(StreamChanged("w1", True), HeartbeatReceived(heartbeat("w1", incarnation="i2")))
    assert mesh.receive("r5") == [SendSubmit("r5", "w1", 1)]


def test_the_only_worker_lost_settles_with_its_error() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    (settle,) = mesh.play(WorkerVanished("w1", "gone"))
    assert isinstance(settle, Settle)
    assert settle.outcome is Outcome.WORKER_LOST


def test_a_lost_request_waits_for_a_worker_whose_stream_is_broken_for_now() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    mesh.play(StreamChanged("w2", False))
    assert mesh.play(WorkerVanished("w1", "gone")) == []
    assert mesh.play(StreamChanged("w2", True)) == [SendSubmit("r1", "w2", 2)]


def test_a_broken_stream_gets_no_new_work_but_keeps_its_requests() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    assert mesh.play(StreamChanged("w1", False)) == []
    assert [mesh.receive(f"s{i}") for i in range(3)] == [[SendSubmit(f"s{i}", "w2", 1)] for i in range(3)]
    assert mesh.play(concluded()) == [
        Settle(request_id="r1", outcome=Outcome.FINISHED, message="finished", output_tokens=10)
    ]


def test_a_worker_that_gave_the_request_up_counts_as_lost() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    (settle,) = mesh.play(concluded(outcome=Outcome.CANCELLED))
    assert isinstance(settle, Settle)
    assert settle.outcome is Outcome.WORKER_LOST


def test_a_handback_goes_elsewhere_as_a_new_attempt() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    mesh.play(LoadReported(worker="w2", queued=5, queued_tokens=5, running=5, backlog_s=90.0, draining=False))
    assert mesh.play(AttemptHandedBack("r1", 1)) == [SendSubmit("r1", "w2", 2)]
    assert mesh.play(AttemptHandedBack("r1", 1)) == []


def test_a_handback_of_the_only_worker_goes_back_a_bounded_number_of_times() -> None:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", max_attempts=3))
    mesh.receive()
    assert mesh.play(AttemptHandedBack("r1", 1), AttemptHandedBack("r1", 2)) == [
        SendSubmit("r1", "w1", 2),
        SendSubmit("r1", "w1", 3),
    ]
    (settle,) = mesh.play(AttemptHandedBack("r1", 3))
    assert isinstance(settle, Settle)
    assert settle.outcome is Outcome.NO_ENGINE


def test_a_draining_worker_gets_nothing_and_its_handback_is_held() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    mesh.play(LoadReported(worker="w1", queued=1, queued_tokens=1, running=0, backlog_s=1.0, draining=True))
    assert mesh.play(AttemptHandedBack("r1", 1)) == []
    assert mesh.play(HeartbeatReceived(heartbeat("w2")), StreamChanged("w2", True)) == [SendSubmit("r1", "w2", 2)]


def test_without_a_worker_a_request_is_held_for_the_patience() -> None:
    mesh = Mesh()
    mesh.play(HeartbeatReceived(heartbeat("w1")))
    assert mesh.receive() == []
    mesh.now_s = 4.9
    assert not any(isinstance(e, Settle) for e in mesh.play(GatewayTicked()))
    mesh.now_s = 5.0
    settles = [e for e in mesh.play(GatewayTicked()) if isinstance(e, Settle)]
    assert settles == [
        Settle(
            request_id="r1",
            outcome=Outcome.NO_ENGINE,
            message="no worker served the model `m` within 5 s: try again later",
            output_tokens=0,
            retry_after_s=5.0,
        )
    ]


def test_a_request_that_stays_held_keeps_the_start_of_its_patience() -> None:
    mesh = Mesh("w1", "w2")
    mesh.receive()
    mesh.play(StreamChanged("w2", False), WorkerVanished("w1", "gone"))  # it waits for `w2`
    mesh.now_s = 4.0
    assert mesh.play(StreamChanged("w1", True)) == []  # `w1` has lost it before
    mesh.now_s = 5.0
    (settle,) = [e for e in mesh.play(GatewayTicked()) if isinstance(e, Settle)]
    assert settle.outcome is Outcome.NO_ENGINE


def test_a_held_request_is_offered_under_the_pool_its_alias_turns_out_to_be() -> None:
    mesh = Mesh()
    assert mesh.receive(model="alias") == []
    mesh.play(HeartbeatReceived(heartbeat("w1")))
    assert mesh.play(StreamChanged("w1", True)) == [SendSubmit("r1", "w1", 1)]
    mesh.play(concluded())
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
    assert (refuse.outcome, refuse.retry_after_s) == (Outcome.NO_ENGINE, 5.0)


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
    mesh.play(FirstTokenRelayed("r1", 1))
    assert mesh.receive("r2") == [SendSubmit("r2", "w1", 1)]
    (refuse,) = mesh.receive("r3")
    assert isinstance(refuse, Refuse)


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
    assert mesh.receive("r4", tenant="other") == [SendSubmit("r4", "w1", 1)]
    mesh.play(TenantsChanged(()))
    assert mesh.receive("r5") == [SendSubmit("r5", "w1", 1)]


def test_bounds_on_requests_are_freed_again() -> None:
    mesh = Mesh("w1")
    mesh.play(TenantsChanged((TenantLimits(tenant="acme", max_in_flight=1, max_queued=1),)))
    mesh.receive("r1")
    mesh.play(FirstTokenRelayed("r1", 1))
    assert refused(mesh, "r2")[0] is Outcome.TENANT_IN_FLIGHT
    mesh.play(concluded("r1"))
    assert mesh.receive("r3") == [SendSubmit("r3", "w1", 1)]
    assert mesh.play(ClientLeft("r3")) == [
        SendCancel("r3", "w1", 1),
        Settle(request_id="r3", outcome=Outcome.CANCELLED, message="the client went away", output_tokens=0),
    ]
    assert mesh.receive("r4") == [SendSubmit("r4", "w1", 1)]


def test_an_answers_tokens_are_charged_when_it_ends() -> None:
    mesh = Mesh("w1")
    mesh.play(TenantsChanged((TenantLimits(tenant="acme", tokens_per_min=6000),)))
    mesh.receive("r1")
    mesh.play(concluded("r1", output_tokens=6000 - 790))
    outcome, wait_s = refused(mesh, "r2")
    assert (outcome, wait_s) == (Outcome.TENANT_TOKEN_RATE, 8.0)  # 800 tokens at 100 a second
    mesh.now_s = 8.0
    assert mesh.receive("r3") == [SendSubmit("r3", "w1", 1)]


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
        SendCancel("r1", "w1", 1),
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
    assert cancel == SendCancel("r1", "w1", 1)
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
    mesh.play(RequestAnnotated("r1", annotation(slo=tagged)), concluded(relegated=True))
    (settled,) = mesh.settled()
    assert settled.slo == (own if stated else replace(tagged, whole=True))
    assert settled.relegated
    assert settled.ttft_s is None  # a plain answer has no first token of its own


def test_a_refusal_by_the_worker_keeps_its_retry() -> None:
    mesh = Mesh("w1")
    mesh.receive()
    (settle,) = mesh.play(concluded(outcome=Outcome.POOL_QUEUE_FULL, output_tokens=0, retry_after_s=7.0))
    assert settle == Settle(
        request_id="r1", outcome=Outcome.POOL_QUEUE_FULL, message="pool_queue_full", output_tokens=0, retry_after_s=7.0
    )


def imbalanced(config: GatewayConfig, **overloaded: Any) -> Mesh:
    """w1 has four requests and much more work than w2, four checks long."""
    mesh = Mesh("w1", config=config)
    for i in range(4):
        mesh.receive(f"r{i}")
    mesh.play(StreamChanged("w2", True))
    for _ in range(3):
        mesh.now_s += 0.5
        mesh.play(
            HeartbeatReceived(heartbeat("w1", queued=4, backlog_s=40.0, **overloaded)),
            HeartbeatReceived(heartbeat("w2")),
        )
        assert not any(isinstance(e, SendRecall) for e in mesh.play(GatewayTicked()))
    mesh.now_s += 0.5
    return mesh


def recalls(mesh: Mesh) -> list[SendRecall]:
    return [e for e in mesh.play(GatewayTicked()) if isinstance(e, SendRecall)]


def test_a_lasting_imbalance_recalls_the_newest_few_once() -> None:
    mesh = imbalanced(GatewayConfig(gateway="g", rebalance_recalls=2))
    assert recalls(mesh) == [SendRecall("r3", "w1", 1), SendRecall("r2", "w1", 1)]
    assert recalls(mesh) == []  # the next check is not due
    mesh.now_s += 0.5
    assert recalls(mesh) == [SendRecall("r1", "w1", 1), SendRecall("r0", "w1", 1)]
    mesh.now_s += 0.5
    assert recalls(mesh) == []
    assert mesh.play(AttemptHandedBack("r3", 1)) == [SendSubmit("r3", "w2", 2)]


def test_no_more_than_half_the_difference_moves() -> None:
    mesh = imbalanced(GatewayConfig(gateway="g", prior_tpot_s=0.06))  # 12.1 s each, half of 40 s are due
    assert recalls(mesh) == [SendRecall("r3", "w1", 1), SendRecall("r2", "w1", 1)]


def test_started_requests_are_not_recalled() -> None:
    mesh = imbalanced(GatewayConfig(gateway="g"))
    for i in range(1, 4):
        mesh.play(FirstTokenRelayed(f"r{i}", 1))
    assert recalls(mesh) == [SendRecall("r0", "w1", 1)]


def test_balanced_workers_are_left_alone() -> None:
    mesh = imbalanced(GatewayConfig(gateway="g"))
    mesh.play(HeartbeatReceived(heartbeat("w2", backlog_s=30.0)))
    assert recalls(mesh) == []


def test_a_request_moved_to_and_fro_keeps_attempts_for_workers_that_go() -> None:
    mesh = imbalanced(GatewayConfig(gateway="g", max_attempts=3))
    assert len(recalls(mesh)) == 4
    mesh.play(AttemptHandedBack("r3", 1))
    for _ in range(4):
        mesh.now_s += 0.5
        mesh.play(HeartbeatReceived(heartbeat("w2", queued=4, backlog_s=40.0)), HeartbeatReceived(heartbeat("w1")))
        assert recalls(mesh) == []
    assert mesh.play(AttemptHandedBack("r3", 2)) == [SendSubmit("r3", "w1", 3)]

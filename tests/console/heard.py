"""What the console hears, as its tests make it up."""

from hmas.contracts.control import (
    AuditRecord,
    Fence,
    FenceBucket,
    FenceTable,
    TopologyDecision,
    TopologyName,
)
from hmas.contracts.job import JobRow
from hmas.contracts.queue import QueuedRow, QueueOrder, QueueReply
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.rehearsal import PastFigures, Policy, Rehearsal, Rehearsed, TenantGain, TenantOnTime
from hmas.contracts.request import Slo
from hmas.contracts.telemetry import (
    EngineSample,
    FirstTokenSeen,
    GatewayTelemetry,
    RequestDispatched,
    RequestFinished,
    RequestOffered,
    RequestSettled,
    WorkerTelemetry,
)
from hmas.contracts.views import Tail, VLong, VShort
from tests.builders import views
from tests.builders.control import control_tuple, engine_control, topology_decision
from tests.builders.registry import engine_info, worker_heartbeat
from tests.builders.telemetry import (
    engine_sample,
    first_token_seen,
    request_finished,
    request_settled,
    worker_telemetry,
)

ENGINE = engine_info(hardware="", max_model_len=4096, kv_capacity_tokens=1000)
SAMPLE = engine_sample(
    engine="e1", running=2, waiting=1, kv_usage=0.42, kv_capacity_tokens=1000, preemptions_total=5, step_s=0.02,
    prefill_tokens_per_s=1e3, decode_tokens_per_s=1e2, n_run=16, b_token=64, utilisation=0.6, busy=0.9,
)  # fmt: skip
DISPATCHED = RequestDispatched(request_id="r1", tenant="acme", engine="e1", waited_s=0.5, age_s=0.0)
FINISHED = request_finished(
    "r1", tenant="acme", engine="e1", prompt_tokens=10, output_tokens=20, predicted_output_tokens_p90=30.0,
    upper_output_tokens=40.0, predictor="v", run_s=2.0, prefill_s=0.25, tpot_slo_s=0.1, age_s=0.1,
)  # fmt: skip
SETTLED = request_settled(
    "r1", tenant="acme", slo=Slo(2.0, 0.1), prompt_tokens=10, output_tokens=20, predicted_output_tokens=18.0,
    ttft_s=0.75, last_token_s=2.5, age_s=0.1,
)  # fmt: skip
AUDIT = AuditRecord(
    source="meta", pool="m", kind="pinned", decision="edf", reason="by ann", selector="pin", view_json="{}", epoch=1,
    seq=1,
)  # fmt: skip


def heartbeat(
    worker: str = "w1", incarnation: str = "i1", *, draining: bool = False, observed: tuple[int, float] | None = None
) -> WorkerHeartbeat:
    return worker_heartbeat(
        worker, incarnation=incarnation, engines=(ENGINE,), queued=3, queued_tokens=900, running=2,
        max_queued_tokens=1000, backlog_s=1.5, draining=draining, observes=observed is not None,
        observed_grants=observed[0] if observed else 0, observed_wait_s=observed[1] if observed else 0.0,
    )  # fmt: skip


def telemetry(
    worker: str = "w1",
    *samples: EngineSample,
    dispatched: tuple[RequestDispatched, ...] = (),
    finished: tuple[RequestFinished, ...] = (),
) -> WorkerTelemetry:
    return worker_telemetry(
        worker, queued_count=3, queued_tokens=900, topology="edf", engines=samples or (SAMPLE,), dispatched=dispatched,
        finished=finished,
    )  # fmt: skip


def settled(*rows: RequestSettled) -> GatewayTelemetry:
    return GatewayTelemetry("g", "m", (), rows)


def offered(name: str, slo: Slo, *, age_s: float = 0.0, max_tokens: int | None = None) -> RequestOffered:
    return RequestOffered(request_id=name, tenant="acme", prompt_tokens=10, age_s=age_s, slo=slo, max_tokens=max_tokens)


def first_token(name: str) -> FirstTokenSeen:
    return first_token_seen(name, tenant="acme", engine="e1", prefill_s=0.2, ttft_slo_s=2.0)


def decision(topology: TopologyName, selector: str = "rules", reason: str = "because") -> TopologyDecision:
    return topology_decision(topology, reason=reason, selector=selector)


def v_short(*, arrival_rps: float, missed: float) -> VShort:
    return views.v_short(
        queued=3, queued_tokens=900, running=2, kv_usage=0.4, utilisation=0.6, ttft=Tail(), violation_rate=missed,
        ttft_violation_rate=missed, arrival_rps=arrival_rps, settled_rps=arrival_rps, kept_rps=arrival_rps,
        kept_violation_rate=0.0, oldest_wait_s=1.0, engines=(), valid_for_s=5.0,
    )  # fmt: skip


def v_long(*tenants: str) -> VLong:
    shares = tuple(
        views.share_view(name, offered=10, settled=8, ok=6, ttft_ok=7, tpot_ok=8, tokens_served=1000)
        for name in tenants
    )
    return views.v_long(
        arrival_rps=6.0, prompt_mean=100.0, output_mean=50.0, tenants=shares, goodput=5.0, goodput_rate=0.75,
        esg_rate=0.8, violation_rate=0.25, ttft_violation_rate=0.1, utilisation=0.6,
    )  # fmt: skip


JOB = JobRow(
    job="1", tenant="acme", model="m", template="t1", calls=3, running=0, failed=0, prompt_tokens=400,
    cached_tokens=100, output_tokens=50, begun_age_s=10.0, quiet_s=6.0, busy_s=3.0, request_id="r1",
)  # fmt: skip


def queued(name: str, slack_s: float | None, *, relegated: bool = False) -> QueuedRow:
    return QueuedRow(
        request_id=name, tenant="acme", lane=0, prompt_tokens=10, predicted_output_tokens=20.0, waited_s=1.0,
        service_s=0.5, start_s=None if slack_s is None else 0.25, slack_s=slack_s, relegated=relegated, known=True,
        why="because",
    )  # fmt: skip


def queue_told(other: str = "") -> QueueReply:
    """Three requests; the other topology has them the other way round."""
    rows = (queued("a", 2.0), queued("b", -1.0, relegated=True), queued("c", None))
    orders = (QueueOrder("max_on_time", rows), *([QueueOrder(other, rows[::-1])] if other else []))
    return QueueReply(
        worker="w1", topology="max_on_time", waiting=3, parked=0, relegated=1, late=1, running=2, age_s=0.1,
        ordered=True, orders=orders,
    )  # fmt: skip


CONTROL = control_tuple(
    engines=(engine_control(b_min=8, u_high=0.8),),
    fence=Fence((FenceTable("v", (FenceBucket(512, 1.1), FenceBucket(2048, 1.4))),)),
)


def rehearsal(*, abstains: str = "", topology: TopologyName = TopologyName.EDF) -> Rehearsal:
    """What a rehearsal of the tenants `acme` and `zeta` says, in which a topology helps `acme`."""

    def figures(acme: float, zeta: float) -> PastFigures:
        shares = (
            TenantOnTime(tenant="acme", requests=150, on_time=acme),
            TenantOnTime(tenant="zeta", requests=50, on_time=zeta),
        )
        return PastFigures(
            requests=200, on_time=0.75 * acme + 0.25 * zeta, ttft_p50_s=0.5, ttft_p95_s=2.0, tenants=shares
        )

    gains = (
        TenantGain(tenant="acme", requests=150, gain=0.2, low=0.1, high=0.3),
        TenantGain(tenant="zeta", requests=50, gain=-0.1, low=-0.2, high=0.0),
    )
    candidate = Rehearsed(
        policy=Policy(topology=topology), figures=figures(0.9, 0.7), gain=0.125, low=0.05, high=0.2, tenants=gains
    )
    return Rehearsal(
        window_s=300.0,
        observed=figures(0.72, 0.8),
        in_force=figures(0.7, 0.8),
        candidates=(candidate,),
        abstains=abstains,
        drawn=3,
    )

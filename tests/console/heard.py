"""What the console hears, as its tests make it up."""

from hmas.contracts.control import (
    AuditRecord,
    ControlTuple,
    EngineControl,
    Fence,
    FenceBucket,
    FenceTable,
    Hints,
    TopologyDecision,
    TopologyName,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import EngineInfo, WorkerHeartbeat
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import (
    EngineSample,
    GatewayTelemetry,
    RequestDispatched,
    RequestFinished,
    RequestSettled,
    WorkerTelemetry,
)

ENGINE = EngineInfo(
    engine="e1", up=True, kind="emulated", hardware="", max_model_len=4096, kv_capacity_tokens=1000, block_size=16,
    max_num_seqs=8,
)  # fmt: skip
SAMPLE = EngineSample(
    engine="e1", up=True, running=2, waiting=1, kv_usage=0.42, kv_capacity_tokens=1000, preemptions_total=5,
    step_s=0.02, prefill_tokens_per_s=1e3, decode_tokens_per_s=1e2, n_run=16, b_token=64, utilisation=0.6, busy=0.9,
)  # fmt: skip
DISPATCHED = RequestDispatched(request_id="r1", tenant="acme", engine="e1", waited_s=0.5, age_s=0.0)
FINISHED = RequestFinished(
    request_id="r1", tenant="acme", task=TaskType.QA, engine="e1", outcome=Outcome.FINISHED, prompt_tokens=10,
    output_tokens=20, predicted_output_tokens_p90=30.0, upper_output_tokens=40.0, predictor="v", run_s=2.0,
    prefill_s=0.25, tpot_s=0.05, tpot_slo_s=0.1, censored=False, age_s=0.1,
)  # fmt: skip
SETTLED = RequestSettled(
    request_id="r1", tenant="acme", task=TaskType.QA, outcome=Outcome.FINISHED, slo=Slo(2.0, 0.1), prompt_tokens=10,
    output_tokens=20, predicted_output_tokens=18.0, ttft_s=0.75, tpot_s=0.05, last_token_s=2.5, relegated=False,
    age_s=0.1,
)  # fmt: skip
AUDIT = AuditRecord(
    source="meta", pool="m", kind="pinned", decision="edf", reason="by ann", selector="pin", view_json="{}", epoch=1,
    seq=1,
)  # fmt: skip


def heartbeat(
    worker: str = "w1", incarnation: str = "i1", *, draining: bool = False, observed: tuple[int, float] | None = None
) -> WorkerHeartbeat:
    return WorkerHeartbeat(
        worker=worker, incarnation=incarnation, address="h:1", wire_version=2, pool="m", aliases=(), engines=(ENGINE,),
        queued=3, queued_tokens=900, running=2, max_queued=100, max_queued_tokens=1000, backlog_s=1.5,
        draining=draining, observes=observed is not None, observed_grants=observed[0] if observed else 0,
        observed_wait_s=observed[1] if observed else 0.0,
    )  # fmt: skip


def telemetry(
    worker: str = "w1",
    *samples: EngineSample,
    dispatched: tuple[RequestDispatched, ...] = (),
    finished: tuple[RequestFinished, ...] = (),
) -> WorkerTelemetry:
    return WorkerTelemetry(
        worker=worker, pool="m", queued_count=3, queued_tokens=900, topology="edf", bypass=False,
        control_expired=False, engines=samples or (SAMPLE,), queued=(), dispatched=dispatched, first_tokens=(),
        finished=finished,
    )  # fmt: skip


def settled(*rows: RequestSettled) -> GatewayTelemetry:
    return GatewayTelemetry("g", "m", (), rows)


def decision(topology: TopologyName, selector: str = "rules", reason: str = "because") -> TopologyDecision:
    return TopologyDecision(
        pool="m", topology=topology, hints=Hints(), bypass=False, epoch=1, seq=1, valid_for_s=15.0, reason=reason,
        selector=selector,
    )  # fmt: skip


CONTROL = ControlTuple(
    worker="w1",
    engines=(
        EngineControl(
            engine="e1", n_run=16, b_token=64, b_min=8, b_max=128, gain_b=1.0, u_low=0.7, u_high=0.8,
        ),
    ),
    fence=Fence((FenceTable("v", (FenceBucket(512, 1.1), FenceBucket(2048, 1.4))),)),
    epoch=1,
    seq=1,
    valid_for_s=15.0,
)  # fmt: skip

"""Requests, annotations and entries for the worker's tests."""

from dataclasses import replace

from hmas.contracts.registry import EngineInfo
from hmas.contracts.request import Annotation, Cost, Request, Slo, Tags, TagSource, TaskType
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.prior import Assumption

ENGINE = EngineInfo(
    engine="e1",
    up=True,
    kind="emulated",
    hardware="A100",
    max_model_len=8192,
    kv_capacity_tokens=100_000,
    block_size=16,
    max_num_seqs=8,
)


def request(
    request_id: str = "r1",
    *,
    tenant: str = "t1",
    flow: str = "",
    prompt_tokens: int = 100,
    max_tokens: int | None = None,
    weight: float = 1.0,
    priority: int = 0,
    arrival_s: float = 0.0,
    slo: Slo | None = None,
) -> Request:
    return Request(
        id=request_id,
        model="m",
        tenant=tenant,
        flow=flow,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        stream=True,
        slo=slo or Slo(4.0, 0.1),
        slo_stated=True,
        priority=priority,
        weight=weight,
        importance=0.75,
        arrival_s=arrival_s,
    )


def annotation(
    tokens: float = 50.0,
    *,
    p90: float | None = None,
    ttft_s: float = 0.1,
    tpot_s: float = 0.02,
    slo: Slo | None = None,
    version: str = "v1",
) -> Annotation:
    upper = tokens * 2 if p90 is None else p90
    tags = Tags(
        task=TaskType.QA,
        slo=slo or Slo(4.0, 0.1),
        output_tokens=tokens,
        output_tokens_p90=upper,
        confidence=0.9,
        source=TagSource.MODEL,
        version=version,
    )
    return Annotation(tags, Cost(ttft_s, tpot_s))


def entry(seq: int, req: Request | None = None, *, tokens: float = 50.0, attempt: int = 1) -> QueueEntry:
    made = request(f"r{seq}", arrival_s=float(seq)) if req is None else req
    return QueueEntry(
        made,
        attempt=attempt,
        gateway="g1",
        seq=seq,
        now_s=float(seq),
        estimate=Assumption(tokens, 2 * tokens, made.prompt_tokens / 1000, 0.02),
    )


def engine(name: str = "e1", **changes: object) -> EngineInfo:
    return replace(ENGINE, engine=name, **changes)  # type: ignore[arg-type]

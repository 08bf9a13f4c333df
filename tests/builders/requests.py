"""Plain requests, what cognition says of them, and their grants; a test changes what it is about."""

from dataclasses import replace
from typing import Any

from hmas.contracts.execution import Grant, Timeline
from hmas.contracts.request import Request, Slo, Tags, TagSource, TaskType

REQUEST = Request(
    id="r1", model="m", tenant="t1", flow="", prompt_tokens=100, max_tokens=None, stream=True, slo=Slo(4.0, 0.1),
    slo_stated=True, priority=0, weight=1.0, importance=0.75, arrival_s=0.0,
)  # fmt: skip
TAGS = Tags(
    task=TaskType.QA, slo=Slo(4.0, 0.07), output_tokens=50.0, output_tokens_p90=100.0, confidence=0.9,
    source=TagSource.MODEL, version="v1",
)  # fmt: skip
TIMELINE = Timeline(
    engine="e1", topology="sjf", queued_s=0.1, queue_length=3, overtaken=0, switches=0, upper_output_tokens=150.0,
    relegated=False,
)  # fmt: skip
GRANT = Grant(request_id="r1", attempt=1, grant=1, engine="e1", urgency=0.0, pace_s=None, timeline=TIMELINE)


def client_request(request_id: str = "r1", **changes: Any) -> Request:
    """A streamed request of 100 prompt tokens, whose client stated the SLO."""
    return replace(REQUEST, id=request_id, **changes)


def model_tags(**changes: Any) -> Tags:
    """The tags of a question, by the model."""
    return replace(TAGS, **changes)


def timeline(**changes: Any) -> Timeline:
    return replace(TIMELINE, **changes)


def grant(request_id: str = "r1", number: int = 1, **changes: Any) -> Grant:
    """A grant on engine `e1`, at its own pace."""
    return replace(GRANT, request_id=request_id, grant=number, **changes)

"""Converts requests and results for the gateway-worker stream. Instants of one host become durations here, and nowhere
else, because the clocks of two hosts differ."""

from hmas.contracts.gateway import AttemptConcluded
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request, Slo
from hmas.contracts.worker import Timeline
from hmas.wire.codec import WireError, from_message, to_message
from hmas.wire.v1 import execution_pb2 as pb


def submit_message(
    request: Request,
    attempt: int,
    now_s: float,
    *,
    promised: bool,
    path: str,
    body: bytes,
    strip_usage: bool,
    replay_output_tokens: int | None,
    traceparent: str,
) -> pb.Submit:
    return pb.Submit(
        request_id=request.id,
        attempt=attempt,
        model=request.model,
        tenant=request.tenant,
        flow=request.flow,
        prompt_tokens=request.prompt_tokens,
        max_tokens=request.max_tokens,
        stream=request.stream,
        slo=to_message(request.slo),
        slo_stated=request.slo_stated,
        priority=request.priority,
        weight=request.weight,
        importance=request.importance,
        waited_s=now_s - request.arrival_s,
        relegate=request.relegate,
        promised=promised,
        path=path,
        body=body,
        strip_usage=strip_usage,
        replay_output_tokens=replay_output_tokens,
        traceparent=traceparent,
    )


def request_of(message: pb.Submit, now_s: float) -> Request:
    """Returns the submitted request, with its arrival on this host's clock: `now_s` minus the seconds already waited.

    Raises WireError if its SLO has a value that is not allowed.
    """
    return Request(
        id=message.request_id,
        model=message.model,
        tenant=message.tenant,
        flow=message.flow,
        prompt_tokens=message.prompt_tokens,
        max_tokens=message.max_tokens if message.HasField("max_tokens") else None,
        stream=message.stream,
        slo=from_message(Slo, message.slo),
        slo_stated=message.slo_stated,
        priority=message.priority,
        weight=message.weight,
        importance=message.importance,
        arrival_s=now_s - message.waited_s,
        relegate=message.relegate,
    )


def concluded_of(message: pb.Finished) -> AttemptConcluded:
    """Returns the event for the gateway agent that an attempt has ended. Raises WireError if the outcome is unknown."""
    try:
        outcome = Outcome(message.outcome)
    except ValueError as error:
        raise WireError(str(error)) from error
    return AttemptConcluded(
        request_id=message.request_id,
        attempt=message.attempt,
        outcome=outcome,
        message=message.message,
        output_tokens=message.output_tokens,
        prompt_tokens=message.prompt_tokens if message.HasField("prompt_tokens") else None,
        tpot_s=message.tpot_s,
        retry_after_s=message.retry_after_s if message.HasField("retry_after_s") else None,
        timeline=from_message(Timeline, message.timeline) if message.HasField("timeline") else None,
    )

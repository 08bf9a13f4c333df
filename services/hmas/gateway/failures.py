"""What a defect in one step costs the gateway: the request that the step was about, and nothing else (ADR 1)."""

from hmas.contracts.execution import Grant, Refusal, Stop, Submit
from hmas.contracts.gateway import (
    ClientLeft,
    FirstTokenRelayed,
    FromWorker,
    GatewayEffect,
    GatewayEvent,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    RunEnded,
    RunHandedOver,
    Settle,
    StartRun,
    ToWorker,
)
from hmas.gateway.shell import GatewayShell
from hmas.runtime.step_failures import StepFailures


def request_of(cause: GatewayEvent | GatewayEffect) -> str:
    """Returns the id of the request that would wait in vain if the event or effect were lost; empty: none would."""
    match cause:
        case RequestReceived(request) | ToWorker(_, Submit(request=request)):
            return request.id
        case FromWorker(_, Grant() | Refusal() | Stop() as message):
            return message.request_id
        case (
            RequestAnnotated() | ClientLeft() | FirstTokenRelayed() | RunHandedOver() | RunEnded()
            | StartRun() | Refuse() | Settle()
        ):  # fmt: skip
            return cause.request_id
        case _:
            return ""


class RequestFailures:
    """Reports each failure, and ends the request that it was about with an internal error."""

    def __init__(self, shell: GatewayShell) -> None:
        self._shell, self._steps = shell, StepFailures()

    def on_failure(self, cause: GatewayEvent | GatewayEffect, error: Exception) -> None:
        self._steps.report(cause, error)
        try:
            self._shell.fail(request_of(cause))
        except Exception as second:  # of a witness, for instance: the request has ended by then
            self._steps.report(cause, second)

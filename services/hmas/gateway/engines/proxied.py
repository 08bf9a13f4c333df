"""A run that a proxy carries out: it sends the request to the engine and relays the answer, of which the gateway learns
the status and the end alone. Of a split run it carries out the second leg."""

from typing import Protocol

from hmas.contracts.outcome import Outcome
from hmas.gateway.api_form import ApiForm
from hmas.gateway.engines.engines import EngineClient
from hmas.gateway.engines.replies import CLIENTS_FAULT, ReplyEnd
from hmas.gateway.engines.runs import GatewayRun, RunSink
from hmas.gateway.errors import ApiError


class ProxiedRun(GatewayRun):
    """A run whose answer does not come through the gateway."""

    counted = False

    def __init__(self, request_id: str, number: int, sink: RunSink, *, form: ApiForm) -> None:
        super().__init__(request_id, number, sink, 0, form=form)

    def answered(self, status: int, *, unreached: bool) -> None:
        """Takes the status of the answer, which is the engine's or, if the proxy could not reach it (`unreached`), the
        proxy's own. The run ends here if it is an error."""
        self._status = status
        if status in CLIENTS_FAULT:
            self._finish(
                ReplyEnd(outcome=Outcome.ENGINE_REFUSED, message=f"the engine answered HTTP {status}", status=status)
            )
        elif status >= 400:
            reason = "the proxy could not reach the engine" if unreached else f"the engine answered HTTP {status}"
            self.fail(reason, retryable=False, unreached=unreached)

    def complete(self) -> None:
        """Takes the end of the answer."""
        self._finish(ReplyEnd(outcome=Outcome.FINISHED, status=self._status))

    def no_endpoint(self, reason: str) -> None:
        """Ends the run because the proxy may not use the engine."""
        self._finish(ReplyEnd(outcome=Outcome.NO_ENGINE, message=reason))


class Proxy(Protocol):
    """What carries a request out in the gateway's place."""

    def carry_out(self, run: ProxiedRun, engine: EngineClient, body: tuple[bytes, bytes], traceparent: str) -> None:
        """Sends the request with this body, in two parts, to the engine. It must not block."""
        ...

    def end(self, error: ApiError | None) -> None:
        """Learns that the request has ended; with an error, which its client should get if it can."""
        ...

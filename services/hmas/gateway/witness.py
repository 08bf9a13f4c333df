"""Those who record what becomes of requests: the journal, traces, the books of usage, metrics and the log.

The shell carries effects out and tells its witness each moment of a request. No decision depends on a witness.
"""

from hmas.contracts.execution import Grant
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import GatewayTelemetry
from hmas.gateway.exchange import Exchange

# Outcomes that are failures of the mesh; a refusal, or a client that went away, is none.
TROUBLE = frozenset({Outcome.NO_ENGINE, Outcome.ENGINE_ERROR, Outcome.INTERNAL, Outcome.TIMED_OUT})


class Witness:
    """Sees the moments of all requests, and does nothing: a class that inherits from it overrides the moments that it
    records. When it is told, the exchange already says what has happened, and when. A method must neither block nor
    raise."""

    def opened(self, exchange: Exchange) -> None:
        """A request has come, and the agent does not know of it yet."""

    def linked(self, exchange: Exchange) -> None:
        """The job of the request was found: it is in `stage`."""

    def submitted(self, exchange: Exchange) -> None:
        """The request was sent to a worker: this is the last of `attempts`."""

    def noted(self, worker: str, grant: Grant) -> None:
        """A worker would have granted a request that this gateway placed because it only observes. The request may have
        ended."""

    def started(self, exchange: Exchange) -> None:
        """A run begins: this is the last of `runs`. The engine gets `traceparent`, which a witness may change."""

    def first(self, exchange: Exchange) -> None:
        """The first token of the last run is about to be relayed."""

    def ended(self, exchange: Exchange) -> None:
        """The last run ended or was stopped."""

    def settled(self, exchange: Exchange) -> None:
        """The request has ended, well or not; the shell keeps its exchange no longer."""

    def judged(self, telemetry: GatewayTelemetry) -> None:
        """The agent reports how it judged requests that were settled."""

    def connected(self, worker: str) -> None:
        """The stream to a worker was opened."""


class Witnesses(Witness):
    """Several witnesses, each told of every moment in their order."""

    def __init__(self, *witnesses: Witness) -> None:
        self._all = witnesses

    def opened(self, exchange: Exchange) -> None:
        for each in self._all:
            each.opened(exchange)

    def linked(self, exchange: Exchange) -> None:
        for each in self._all:
            each.linked(exchange)

    def submitted(self, exchange: Exchange) -> None:
        for each in self._all:
            each.submitted(exchange)

    def noted(self, worker: str, grant: Grant) -> None:
        for each in self._all:
            each.noted(worker, grant)

    def started(self, exchange: Exchange) -> None:
        for each in self._all:
            each.started(exchange)

    def first(self, exchange: Exchange) -> None:
        for each in self._all:
            each.first(exchange)

    def ended(self, exchange: Exchange) -> None:
        for each in self._all:
            each.ended(exchange)

    def settled(self, exchange: Exchange) -> None:
        for each in self._all:
            each.settled(exchange)

    def judged(self, telemetry: GatewayTelemetry) -> None:
        for each in self._all:
            each.judged(telemetry)

    def connected(self, worker: str) -> None:
        for each in self._all:
            each.connected(worker)

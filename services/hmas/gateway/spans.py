"""The spans of requests: one for the request, one for each time in a queue, and one for each engine's answer."""

from dataclasses import dataclass

from hmas.contracts.outcome import Outcome
from hmas.gateway.exchange import Exchange
from hmas.gateway.witness import TROUBLE, Witness
from hmas.runtime.tracing import Attributes, Span, Tracing

_WELL = frozenset({Outcome.FINISHED.value, Outcome.CANCELLED.value})  # ends of a run that are no error


@dataclass(slots=True)
class _Spans:
    request: Span
    queue: Span | None = None
    engine: Span | None = None

    def leave_queue(self, outcome: str) -> None:
        if self.queue is not None:
            self.queue.end(outcome, False)
            self.queue = None


class RequestSpans(Witness):
    """Traces requests. An engine gets the `traceparent` of its own span."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._open: dict[str, _Spans] = {}  # by request

    def opened(self, exchange: Exchange) -> None:
        request = exchange.request
        attributes: Attributes = {
            "hmas.request": request.id,
            "hmas.tenant": request.tenant,
            "gen_ai.request.model": request.model,
            "gen_ai.usage.input_tokens": request.prompt_tokens,
        }
        span = self._tracing.start("gateway", "server", exchange.traceparent, attributes)
        self._open[request.id] = _Spans(span)

    def submitted(self, exchange: Exchange) -> None:
        spans = self._open[exchange.request.id]
        if spans.queue is None:
            spans.queue = self._tracing.start("queue", "internal", spans.request.traceparent, {})

    def started(self, exchange: Exchange) -> None:
        spans, run = self._open[exchange.request.id], exchange.runs[-1]
        spans.leave_queue("started")
        attributes: Attributes = {"hmas.worker": run.worker, "hmas.engine": run.engine, "hmas.bypass": run.bypass}
        spans.engine = self._tracing.start("engine", "client", spans.request.traceparent, attributes)
        exchange.traceparent = spans.engine.traceparent

    def first(self, exchange: Exchange) -> None:
        engine = self._open[exchange.request.id].engine
        if engine is not None:
            engine.event("first_token")

    def ended(self, exchange: Exchange) -> None:
        spans, outcome = self._open[exchange.request.id], exchange.runs[-1].outcome
        if spans.engine is not None:
            spans.engine.end(outcome, outcome not in _WELL)
            spans.engine = None

    def settled(self, exchange: Exchange) -> None:
        spans = self._open.pop(exchange.request.id)
        outcome = exchange.outcome or Outcome.INTERNAL
        spans.leave_queue(outcome.value)
        used = {"gen_ai.usage.output_tokens": exchange.output_tokens, "hmas.attempts": len(exchange.attempts)}
        spans.request.end(outcome.value, outcome in TROUBLE, used)

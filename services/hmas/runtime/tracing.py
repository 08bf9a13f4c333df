"""OpenTelemetry traces. They are off by default: without an endpoint nothing is imported or computed.

A trace continues the W3C trace context that a client sends. The gateway makes one span for the request, one for its
time in a worker's queue and one for each engine's answer, and the engine gets the `traceparent` of the last. No text of
a request is ever an attribute of a span.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hmas.runtime.extras import needs
from hmas.runtime.settings import RuntimeSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

Attributes = Mapping[str, str | int | float | bool]


class Span:
    """A span: the time that one service spends on a request. `end` must be called exactly once."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: "OtelSpan") -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def event(self, name: str) -> None:
        self._span.add_event(name)

    def end(self, outcome: str, failed: bool, attributes: Attributes | None = None) -> None:
        """Ends the span. `outcome` becomes an attribute of the span; `failed` marks it as an error."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attributes({"hmas.outcome": outcome, **(attributes or {})})
        if failed:
            self._span.set_status(Status(StatusCode.ERROR, outcome))
        self._span.end()


class Tracing:
    """Starts spans and exports them in the background; spans that cannot be exported in time are dropped. `ratio`:
    share of the requests without a client's trace context that are traced, from 0 to 1."""

    def __init__(self, service: str, instance: str, ratio: float, processor: "SpanProcessor") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

        resource = Resource({"service.name": f"hmas-{service}", "service.instance.id": instance})
        self._provider = TracerProvider(ParentBasedTraceIdRatio(ratio), resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer: Tracer = self._provider.get_tracer("hmas")

    def start(self, name: str, kind: str, traceparent: str, attributes: Attributes) -> Span:
        """Starts a span below the one that `traceparent` names, or a new trace if that is empty. `kind`: "server",
        "client" or "internal"."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
        return Span(self._tracer.start_span(name, parent, SpanKind[kind.upper()], attributes))

    def close(self) -> None:
        """Exports the spans that wait. Blocks for some seconds if the collector cannot be reached."""
        self._provider.shutdown()


def open_tracing(service: str, instance: str, settings: RuntimeSettings) -> Tracing | None:
    """Returns the tracing that the settings ask for, or None if they name no OTLP endpoint. Raises MissingExtra if
    OpenTelemetry is not installed."""
    if not settings.otlp_endpoint:
        return None
    with needs("otel", "leave HMAS_OTLP_ENDPOINT unset"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    exporter = OTLPSpanExporter(f"{settings.otlp_endpoint.rstrip('/')}/v1/traces", timeout=5)
    return Tracing(service, instance, settings.trace_ratio, BatchSpanProcessor(exporter))

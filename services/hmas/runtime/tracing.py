"""OpenTelemetry traces, off by default: without an endpoint nothing is imported, and a request costs an `is None`.

The W3C context of a client is continued: gateway, worker and the call to the engine are a span each, and the engine
gets the last one's `traceparent`. No text of a request is ever an attribute.
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
    """One stretch of a request's way. `end` may come once only."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: "OtelSpan") -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def event(self, name: str) -> None:
        self._span.add_event(name)

    def end(self, outcome: str, failed: bool, attributes: Attributes | None = None) -> None:
        """`outcome` as in the metrics; `failed` marks the span as an error."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attributes({"hmas.outcome": outcome, **(attributes or {})})
        if failed:
            self._span.set_status(Status(StatusCode.ERROR, outcome))
        self._span.end()


class Tracing:
    """Starts spans and exports them in the background; what cannot be exported in time is dropped."""

    def __init__(self, service: str, instance: str, ratio: float, processor: "SpanProcessor") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

        resource = Resource({"service.name": f"hmas-{service}", "service.instance.id": instance})
        self._provider = TracerProvider(ParentBasedTraceIdRatio(ratio), resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer: Tracer = self._provider.get_tracer("hmas")

    def start(self, name: str, kind: str, traceparent: str, attributes: Attributes) -> Span:
        """A child of `traceparent`, or a new trace's first if that is empty. `kind`: server or client."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
        return Span(self._tracer.start_span(name, parent, SpanKind[kind.upper()], attributes))

    def close(self) -> None:
        """Exports what waits. Blocks for some seconds where the collector is away."""
        self._provider.shutdown()


def open_tracing(service: str, instance: str, settings: RuntimeSettings) -> Tracing | None:
    """None while no endpoint is set. Raises MissingExtra."""
    if not settings.otlp_endpoint:
        return None
    with needs("otel", "leave HMAS_OTLP_ENDPOINT unset"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    exporter = OTLPSpanExporter(f"{settings.otlp_endpoint.rstrip('/')}/v1/traces", timeout=5)
    return Tracing(service, instance, settings.trace_ratio, BatchSpanProcessor(exporter))

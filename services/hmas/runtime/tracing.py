"""OpenTelemetry traces. They are off by default: without an endpoint nothing is imported or computed.

A trace continues the W3C trace context that a client sends. The gateway makes one span for the request, one for its
time in a worker's queue and one for each engine's answer, and the engine gets the `traceparent` of the last. No text of
a request is ever an attribute of a span.

The standard variables of OpenTelemetry (`OTEL_*`) work as in other programs; where a setting of ours is set as well, it
counts and the variable does not.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from hmas.runtime.extras import MissingExtra, needs
from hmas.runtime.settings import RuntimeSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

log = structlog.get_logger()

Attributes = Mapping[str, str | int | float | bool]
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


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
    share of the requests without a client's trace context that are traced, from 0 to 1; None: `OTEL_TRACES_SAMPLER`
    tells which. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` add to the service's attributes, or replace them."""

    def __init__(self, service: str, instance: str, ratio: float | None, processor: "SpanProcessor") -> None:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

        ours = Resource({"service.name": f"hmas-{service}", "service.instance.id": instance})
        resource = ours.merge(OTELResourceDetector().detect())
        sampler = None if ratio is None else ParentBasedTraceIdRatio(ratio)
        self._provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
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
    """Returns the tracing that the settings ask for or, without an endpoint in them, OpenTelemetry's own variables;
    None if neither does.

    Raises MissingExtra if the settings ask for it and OpenTelemetry is not installed. Where variables do, which may be
    meant for other programs, a warning is logged instead.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    asked = bool(settings.otlp_endpoint)
    if not asked and not any(map(os.environ.get, ENDPOINTS)):
        return None
    if not asked and (obstacle := unusable(os.environ)):
        log.warning("no_tracing", reason=obstacle)
        return None
    try:
        with needs("otel", f"leave {'HMAS_OTLP_ENDPOINT' if asked else ' and '.join(ENDPOINTS)} unset"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except MissingExtra as missing:
        if asked:
            raise
        log.warning("no_tracing", reason=str(missing))
        return None
    if asked:
        exporter = OTLPSpanExporter(f"{settings.otlp_endpoint.rstrip('/')}/v1/traces", timeout=5)
    else:
        exporter = OTLPSpanExporter()  # it reads endpoint, headers, certificates and time-out from the variables
    ours = "trace_ratio" in settings.model_fields_set or not os.environ.get("OTEL_TRACES_SAMPLER")
    return Tracing(service, instance, settings.trace_ratio if ours else None, BatchSpanProcessor(exporter))


def unusable(environ: Mapping[str, str]) -> str:
    """Returns why no traces go where the variables of OpenTelemetry ask for, and what to do; empty if they do."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if exporter != "otlp":
        return f"OTEL_TRACES_EXPORTER is {exporter}, and traces go to otlp alone"
    protocol = next(filter(None, map(environ.get, PROTOCOLS)), "http/protobuf")
    if protocol != "http/protobuf":
        return (
            f"the protocol {protocol} is not known: set {PROTOCOLS[0]}=http/protobuf, and the collector's HTTP endpoint"
        )
    return ""

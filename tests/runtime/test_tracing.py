import os
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from hmas.runtime.extras import MissingExtra
from hmas.runtime.settings import RuntimeSettings
from hmas.runtime.tracing import Tracing, open_tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-2] + "00"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def tracing(spans: InMemorySpanExporter, ratio: float = 1.0) -> Tracing:
    return Tracing("worker", "worker-1", ratio, SimpleSpanProcessor(spans))


def test_a_clients_trace_is_continued_hop_by_hop(spans: InMemorySpanExporter) -> None:
    trace = tracing(spans)
    gateway = trace.start("gateway", "server", PARENT, {"hmas.tenant": "acme"})
    engine = trace.start("engine", "client", gateway.traceparent, {})
    engine.event("first_token")
    engine.end("engine_error", True)
    gateway.end("finished", False, {"hmas.attempts": 2})
    inner, outer = spans.get_finished_spans()
    assert outer.parent is not None
    assert inner.parent is not None
    assert f"{outer.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{outer.parent.span_id:016x}" == PARENT.split("-")[2]
    assert inner.parent.span_id == outer.context.span_id
    assert [event.name for event in inner.events] == ["first_token"]
    assert not inner.status.is_ok
    assert outer.attributes is not None
    assert dict(outer.attributes) == {"hmas.tenant": "acme", "hmas.attempts": 2, "hmas.outcome": "finished"}


def test_the_client_decides_on_sampling_and_the_ratio_for_the_rest(spans: InMemorySpanExporter) -> None:
    trace = tracing(spans, 0.0)
    for parent in (PARENT, UNSAMPLED, ""):
        span = trace.start("gateway", "server", parent, {})
        span.end("finished", False)
        sampled = int(span.traceparent[-2:], 16) & 1
        assert sampled == (parent == PARENT)
    assert len(spans.get_finished_spans()) == 1


@pytest.fixture
def variables() -> Iterator[MutableMapping[str, str]]:
    """The environment, with no variable of OpenTelemetry but those that a test sets."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("OTEL_")]:
        del os.environ[name]
    yield os.environ
    os.environ.clear()
    os.environ.update(before)


def service_name(trace: Tracing, spans: InMemorySpanExporter) -> object:
    trace.start("gateway", "server", "", {}).end("finished", False)
    return spans.get_finished_spans()[-1].resource.attributes["service.name"]


def test_the_service_has_the_name_that_the_variables_give_it(
    spans: InMemorySpanExporter, variables: MutableMapping[str, str]
) -> None:
    assert service_name(tracing(spans), spans) == "hmas-worker"
    variables["OTEL_RESOURCE_ATTRIBUTES"] = "service.name=inference,deployment.environment=prod"
    assert service_name(tracing(spans), spans) == "inference"
    assert spans.get_finished_spans()[-1].resource.attributes["deployment.environment"] == "prod"
    assert spans.get_finished_spans()[-1].resource.attributes["service.instance.id"] == "worker-1"
    variables["OTEL_SERVICE_NAME"] = "chat"
    assert service_name(tracing(spans), spans) == "chat"


def opened(settings: RuntimeSettings, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The URL to which traces would go, None for none."""
    made: list[Any] = []
    processor = "opentelemetry.sdk.trace.export.BatchSpanProcessor"

    def kept(exporter: Any) -> SimpleSpanProcessor:
        made.append(exporter)
        return SimpleSpanProcessor(exporter)

    monkeypatch.setattr(processor, kept)
    trace = open_tracing("gateway", "g", settings)
    return None if trace is None else str(made[0]._endpoint)


@pytest.mark.parametrize(
    ("told", "endpoint", "expected"),
    [
        ({}, "", None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "", "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/t"}, "", "http://c:4318/t"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http://ours:1/", "http://ours:1/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, "", None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, "http://ours:1", None),
    ],
)
def test_the_variables_say_where_traces_go_unless_a_setting_does(
    told: dict[str, str],
    endpoint: str,
    expected: str | None,
    variables: MutableMapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables.update(told)
    assert opened(RuntimeSettings(otlp_endpoint=endpoint), monkeypatch) == expected


def test_the_variables_choose_the_sampler_unless_a_setting_does(
    variables: MutableMapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ratios: list[float | None] = []
    monkeypatch.setattr(
        "hmas.runtime.tracing.Tracing", lambda service, instance, ratio, processor: ratios.append(ratio)
    )
    there = "http://127.0.0.1:1"
    open_tracing("gateway", "g", RuntimeSettings(otlp_endpoint=there))
    variables["OTEL_TRACES_SAMPLER"] = "always_off"
    open_tracing("gateway", "g", RuntimeSettings(otlp_endpoint=there))
    open_tracing("gateway", "g", RuntimeSettings(otlp_endpoint=there, trace_ratio=0.5))
    assert ratios == [1.0, None, 0.5]


def test_what_only_the_variables_ask_for_is_warned_of_and_not_refused(
    variables: MutableMapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    with capture_logs() as logs:
        assert open_tracing("gateway", "g", RuntimeSettings()) is None
    assert [(entry["event"], "[otel]" in entry["reason"]) for entry in logs] == [("no_tracing", True)]


def test_off_by_default_and_nothing_is_imported() -> None:
    assert open_tracing("gateway", "g", RuntimeSettings()) is None
    code = (
        "import sys; import hmas.runtime.tracing, hmas.gateway.shell, hmas.worker.shell\n"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry.sdk')]"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_an_endpoint_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtra, match=r"\[otel\]"):
        open_tracing("gateway", "g", RuntimeSettings(otlp_endpoint="http://127.0.0.1:1"))

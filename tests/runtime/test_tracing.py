import subprocess
import sys

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

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

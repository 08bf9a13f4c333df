"""A real mesh that exports to a real OTLP receiver."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.conftest import eventually

pytestmark = pytest.mark.e2e
TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT_SPAN = "b7ad6b7169203331"


class Collector:
    """Spans as they come in, by name, with their service."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    import gzip

                    data = gzip.decompress(data)
                for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
                    names = {a.key: a.value.string_value for a in resource.resource.attributes}
                    collector.spans += [(names["service.name"], s) for r in resource.scope_spans for s in r.spans]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, trace: str) -> dict[str, Any]:
        return {span.name: span for _, span in self.spans if span.trace_id.hex() == trace}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


async def test_one_trace_from_the_client_to_the_engine(tmp_path: Path, start_mesh: Any, collector: Collector) -> None:
    env = {"HMAS_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with start_mesh(tmp_path, env=env) as mesh:
        reply = httpx.post(
            f"{mesh.url}/v1/completions",
            json={"model": "emulated", "prompt": "secret words", "max_tokens": 5, "stream": True},
            headers={"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01"},
            timeout=60,
        )
        assert reply.status_code == 200
        await eventually(lambda: set(collector.of(TRACE)) == {"gateway", "queue", "engine"}, 30)
    spans = collector.of(TRACE)
    assert spans["gateway"].parent_span_id.hex() == CLIENT_SPAN
    assert spans["queue"].parent_span_id == spans["engine"].parent_span_id == spans["gateway"].span_id
    assert spans["queue"].end_time_unix_nano <= spans["engine"].start_time_unix_nano
    assert "first_token" in [event.name for event in spans["engine"].events]
    assert {service for service, _ in collector.spans} == {"hmas-gateway"}
    assert "secret words" not in json.dumps([str(span) for _, span in collector.spans])

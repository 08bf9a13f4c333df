"""The model of given engines is asked of the first one."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from hmas.mesh.options import MeshOptions
from hmas.mesh.up import with_model


@pytest.fixture
def engine() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": "qwen"}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_first_engine_names_the_model(engine: str) -> None:
    assert with_model(MeshOptions(engine_urls=(engine, "http://127.0.0.1:9"))).pool == "qwen"
    assert with_model(MeshOptions(engine_urls=(engine,), model="mine")).pool == "mine"
    assert with_model(MeshOptions()).pool == "emulated"


def test_an_engine_that_does_not_answer_is_named_with_advice() -> None:
    with pytest.raises(ValueError, match="--model"):
        with_model(MeshOptions(engine_urls=("http://127.0.0.1:9",)))

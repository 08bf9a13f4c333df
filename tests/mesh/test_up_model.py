"""The models of given engines are asked of them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hmas.mesh.options import MeshOptions
from hmas.mesh.plan import make_plan
from hmas.mesh.up import with_model


@pytest.fixture
def engine() -> Iterator[str]:
    with listing("qwen") as url:
        yield url


@pytest.fixture
def other() -> Iterator[str]:
    with listing("llama") as url:
        yield url


@contextmanager
def listing(model: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": model}]}).encode()
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


def test_each_engine_names_its_model(engine: str, other: str) -> None:
    options = with_model(MeshOptions(engine_urls=(engine, other, "http://127.0.0.1:9")))
    assert [options.pool_of(url) for url in options.engine_urls] == ["qwen", "llama", "qwen"]
    assert with_model(MeshOptions(engine_urls=(engine, other), model="mine")).pool_of(other) == "mine"


def test_the_first_engine_names_the_model(engine: str) -> None:
    assert with_model(MeshOptions(engine_urls=(engine, "http://127.0.0.1:9"))).pool == "qwen"
    assert with_model(MeshOptions(engine_urls=(engine,), model="mine")).pool == "mine"
    assert with_model(MeshOptions()).pool == "emulated"


def test_engines_of_several_models_are_pools_of_one_mesh(tmp_path: Path) -> None:
    a, b, c = (f"http://127.0.0.1:{port}" for port in (1, 2, 3))
    options = MeshOptions(
        engine_urls=(a, b, c), model="one", models={b: "two"}, aliases=("small", "big=two"), workers=1,
        nats_url="nats://127.0.0.1:9", data_dir=tmp_path,
    )  # fmt: skip
    environments = [each.env for each in make_plan(options).processes if each.name.startswith("worker-")]
    told = [
        (e["HMAS_POOL"], e["HMAS_ALIASES"], [x["url"] for x in json.loads(e["HMAS_ENGINES"])]) for e in environments
    ]
    assert told == [("one", "small", [a, c]), ("two", "big", [b])]


def test_an_engine_that_does_not_answer_is_named_with_advice() -> None:
    with pytest.raises(ValueError, match="--model"):
        with_model(MeshOptions(engine_urls=("http://127.0.0.1:9",)))

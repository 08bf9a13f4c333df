"""The models of given engines are asked of them."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import cast

import pytest

from hmas.mesh import up
from hmas.mesh.options import MeshOptions
from hmas.mesh.ports import free_port
from hmas.mesh.processes import make_plan
from hmas.mesh.supervisor import Mesh
from hmas.mesh.up import NotUp, with_model
from tests.conftest import PATIENCE_S, eventually

ABSENT = "http://127.0.0.1:9"


class NamedMesh:
    """What `name_late` sees of a mesh."""

    def __init__(self) -> None:
        self.options = MeshOptions()
        self.served: dict[str, str] = {}

    async def serve_model(self, engine_url: str, model: str) -> None:
        self.served[engine_url] = model
        self.options = replace(self.options, unnamed=self.options.unnamed - {engine_url})


@pytest.fixture
def engine() -> Iterator[str]:
    with listing("qwen") as url:
        yield url


@pytest.fixture
def other() -> Iterator[str]:
    with listing("llama") as url:
        yield url


@contextmanager
def listing(model: str, *, port: int = 0, status: int = 200, asked: list[str] | None = None) -> Iterator[str]:
    """An engine that answers each question for its models with `status`, and notes it in `asked`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if asked is not None:
                asked.append(self.path)
            body = json.dumps({"data": [{"id": model}]}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_each_engine_names_its_model(engine: str, other: str) -> None:
    options = with_model(MeshOptions(engine_urls=(engine, other, ABSENT)))
    assert [options.pool_of(url) for url in options.engine_urls] == ["qwen", "llama", "qwen"]
    assert with_model(MeshOptions(engine_urls=(engine, other), model="mine")).pool_of(other) == "mine"


def test_the_first_engine_that_answers_names_the_model_of_those_that_do_not(engine: str) -> None:
    said: list[str] = []
    for urls in ((engine, ABSENT), (ABSENT, engine)):
        options = with_model(MeshOptions(engine_urls=urls), said.append)
        assert [options.pool_of(url) for url in urls] == ["qwen", "qwen"]
        assert options.unnamed == {ABSENT}
    assert len(said) == 2
    assert all(ABSENT in line and "once it does" in line for line in said)
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


def test_an_engine_whose_model_nobody_knows_has_a_worker_of_its_own(tmp_path: Path) -> None:
    a, b, c = (f"http://127.0.0.1:{port}" for port in (1, 2, 3))
    options = MeshOptions(
        engine_urls=(a, b, c), model="one", unnamed=frozenset({b}), workers=1, nats_url="nats://127.0.0.1:9",
        data_dir=tmp_path,
    )  # fmt: skip
    assert list(make_plan(options).attached.values()) == [(a, c), (b,)]


async def test_what_names_its_model_late_is_told_to_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "ASK_EVERY_S", 0.01)
    mesh = NamedMesh()
    with listing("qwen") as early, listing("llama", status=401) as locked:
        mesh.options = MeshOptions(unnamed=frozenset({early, locked, ABSENT}))
        naming = asyncio.create_task(up.name_late(cast(Mesh, mesh)))
        await eventually(lambda: mesh.served == {early: "qwen"})
        assert not naming.done()
        mesh.options = MeshOptions()
        await asyncio.wait_for(naming, PATIENCE_S)


def test_an_engine_that_does_not_answer_is_named_with_advice() -> None:
    with pytest.raises(NotUp, match=f"{ABSENT} does not list its model .*: start it, or name its model with --model"):
        with_model(MeshOptions(engine_urls=(ABSENT,)))


@pytest.mark.parametrize(("status", "kind"), [(503, NotUp), (401, ValueError), (404, ValueError)])
def test_what_will_not_change_by_waiting_is_told_apart(status: int, kind: type[ValueError]) -> None:
    with listing("qwen", status=status) as url, pytest.raises(ValueError, match=str(status)) as raised:
        with_model(MeshOptions(engine_urls=(url,)))
    assert raised.type is kind


async def test_a_mesh_waits_for_its_engines_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "ASK_EVERY_S", 0.05)
    port, said, asked = free_port(), list[str](), list[str]()
    waiting = asyncio.create_task(
        up.with_model_once_up(MeshOptions(engine_urls=(f"http://127.0.0.1:{port}",)), said.append)
    )
    await eventually(lambda: bool(said))
    with listing("qwen", port=port, status=503, asked=asked):
        await eventually(lambda: len(asked) >= 3)
    assert not waiting.done()
    with listing("qwen", port=port):
        assert (await asyncio.wait_for(waiting, PATIENCE_S)).pool == "qwen"
    absent, unready = said  # a reason is told once
    assert absent.startswith(f"waiting: the engine http://127.0.0.1:{port} does not list")
    assert "503" in unready
    with listing("qwen", status=401) as url, pytest.raises(ValueError, match="401"):
        await asyncio.wait_for(up.with_model_once_up(MeshOptions(engine_urls=(url,)), said.append), PATIENCE_S)

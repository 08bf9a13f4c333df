"""Each method on each path of the API's port gets its own answer, over each kind of connection, and so does the next
request of that connection."""

import pytest

from hmas.gateway.openai.forms import FORMS
from tests.every_method import KEPT, METHODS, OLD, PIPELINED, WAYS, EveryMethod
from tests.gateway.gateway_harness import gateway

READ = (
    "/v1/models", "/v1/models/m", "/v1/models/unknown", "/hmas/timeline", "/health", "/ready", "/openapi.json",
    "/version",
)  # fmt: skip
OTHER = ("/", "/nowhere", "/v1", "/v1/chat", "/metrics")


@pytest.mark.parametrize("way", WAYS)
async def test_each_method_on_each_path_gets_its_own_answer(way: str) -> None:
    async with gateway() as g:
        client = EveryMethod(g.port, "/version", b'{"version"')
        for path in (*READ, *FORMS, *OTHER):
            for method in METHODS:
                answer = await client.ask(method, path, way)
                assert answer.status < 500, (method, path, answer)
                assert (answer.status == 405) == (path not in OTHER and method not in _methods(path)), (method, path)


def _methods(path: str) -> tuple[str, ...]:
    return ("POST",) if path in FORMS else ("GET", "HEAD")


@pytest.mark.parametrize("way", [KEPT, PIPELINED, OLD])
async def test_head_is_answered_as_get_is_without_the_body(way: str) -> None:
    async with gateway() as g:
        client = EveryMethod(g.port, "/version", b'{"version"')
        for path in (*READ, *OTHER):
            head, get = await client.ask("HEAD", path, way), await client.ask("GET", path, way)
            assert head.status == get.status, path
            assert head.headers[b"content-length"] == b"%d" % len(get.body), path
            assert head.headers[b"content-type"] == get.headers[b"content-type"], path

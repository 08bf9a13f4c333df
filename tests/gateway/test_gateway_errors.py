from typing import Any

import orjson
import pytest

from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.gateway.errors import ApiError, engine_error


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.FINISHED])
def test_every_outcome_is_an_openai_error_object(outcome: Outcome) -> None:
    error = ApiError.of(outcome, "why")
    body = orjson.loads(error.body())["error"]
    assert (body["message"], body["param"], body["reason"]) == ("why", None, outcome.value)
    assert body["type"]
    assert body["code"]
    headers = dict(error.headers())
    assert headers[b"x-hmas-reason"] == outcome.value.encode()
    assert (headers.get(b"x-should-retry") == b"false") is not OUTCOME_TABLE[outcome].retry_helps
    assert (b"retry-after" in headers) is (error.status in (429, 503))
    assert error.events() == b"data: " + error.body() + b"\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize(("seconds", "header"), [(0.0, b"1"), (2.1, b"3"), (12.0, b"12"), (1e9, b"3600")])
def test_retry_after_is_a_whole_number_rounded_up(seconds: float, header: bytes) -> None:
    error = ApiError.of(Outcome.POOL_QUEUE_FULL, "full", retry_after_s=seconds, estimated_wait_s=2.00049)
    assert dict(error.headers())[b"retry-after"] == header
    assert orjson.loads(error.body())["error"]["estimated_wait_s"] == 2.0


def test_a_retry_that_never_helps_is_said_so() -> None:
    error = ApiError.of(Outcome.TENANT_REQUEST_RATE, "none allowed", retry_after_s=float("inf"))
    headers = dict(error.headers())
    assert headers[b"x-should-retry"] == b"false"
    assert b"retry-after" not in headers


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b'{"error":{"message":"too long","type":"BadRequestError","param":"messages","code":400}}',
            ("too long", "BadRequestError", "messages", 400),
        ),
        (
            b'{"object":"error","message":"flat","type":"BadRequest","param":null,"code":400}',
            ("flat", "BadRequest", None, 400),
        ),
        (b'{"error":"just text"}', ("just text", "invalid_request_error", None, 422)),
        (b'{"detail":"Not allowed"}', ("Not allowed", "invalid_request_error", None, 422)),
        (
            b'{"detail":[{"loc":["body","n"],"msg":"bad n","type":"x"}]}',
            ("body.n: bad n", "invalid_request_error", None, 422),
        ),
        (b'{"detail":{"a":1}}', ('{"a":1}', "invalid_request_error", None, 422)),
        (b"Bad thing\n", ("Bad thing", "invalid_request_error", None, 422)),
        (b"", ("the engine refused the request", "invalid_request_error", None, 422)),
        (b"[1]", ("[1]", "invalid_request_error", None, 422)),
        (b'{"error":{"message":3,"type":4,"code":[]}}', (None, "invalid_request_error", None, 422)),
    ],
)
def test_engine_errors_of_every_shape(data: bytes, expected: tuple[Any, ...]) -> None:
    error = engine_error(422, data)
    message, kind, param, code = expected
    assert error.message == (message or data.decode())
    assert (error.status, error.type, error.param, error.code) == (422, kind, param, code)


@pytest.mark.parametrize(("status", "kept"), [(400, 400), (429, 429), (0, 400), (200, 400), (500, 400)])
def test_only_client_errors_keep_the_engines_status(status: int, kept: int) -> None:
    assert engine_error(status, b"x").status == kept


def test_a_huge_engine_message_is_cut() -> None:
    assert len(engine_error(400, b"x" * 10**6).message) == 1000

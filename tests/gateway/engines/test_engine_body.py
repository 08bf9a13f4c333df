"""Fields that the adapter adds to a client's body."""

import orjson
import pytest

from hmas.gateway.engines.body import replay_fields, with_fields, with_xargs


def test_a_body_without_additions_is_untouched() -> None:
    body = b'{"a" : 1}\n'
    assert with_fields(body, {}) is body
    assert with_fields(body, {"absent": None}) is body


@pytest.mark.parametrize(
    "body", [b'{"a":1}', b' {"a":1}\n', b"{}", b"{ }", b'{"priority":3,"a":1}', b'{"x":"priority"}']
)
def test_fields_are_set_once_whatever_the_body_looks_like(body: bytes) -> None:
    added = with_fields(body, {"priority": 5})
    assert added.count(b'"priority":') == 1
    assert orjson.loads(added) == {**orjson.loads(body), "priority": 5}


def test_a_replay_overrides_the_clients_bounds() -> None:
    body = orjson.dumps({"max_tokens": 4096, "max_completion_tokens": 4096, "stop": ["x"], "model": "m"})
    assert orjson.loads(with_fields(body, replay_fields(17))) == {
        "model": "m", "max_tokens": 17, "min_tokens": 17, "ignore_eos": True,
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"[1]", b"nonsense", b'"}'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        with_fields(body, {"priority": 1})


@pytest.mark.parametrize(
    ("body", "xargs"),
    [
        (b'{"model":"m"}', {"hmas_urgency": 2.5}),
        (b'{"model":"m","vllm_xargs":{"own":1}}', {"own": 1, "hmas_urgency": 2.5}),
        (b'{"model":"m","vllm_xargs":{"hmas_urgency":-1e9}}', {"hmas_urgency": 2.5}),
        (b'{"model":"m","vllm_xargs":"odd"}', {"hmas_urgency": 2.5}),
        (b'{"model":"m","prompt":"say \\"vllm_xargs\\""}', {"hmas_urgency": 2.5}),
    ],
)
def test_clients_keep_their_own_arguments_but_not_our_ranks(body: bytes, xargs: dict[str, float]) -> None:
    document = orjson.loads(with_xargs(body, {"hmas_urgency": 2.5}))
    assert document["vllm_xargs"] == xargs
    assert document["model"] == "m"

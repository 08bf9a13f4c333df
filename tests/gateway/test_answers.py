"""A body for several answers: read once, its bytes shared, and its limits asked for all before any answer is made."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from hmas.contracts.gateway import (
    NO_VOLUME,
    GatewayEvent,
    Refuse,
    RequestReceived,
    TenantLimits,
    TenantsChanged,
    Volume,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.engines.body import run_body
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.openai.body import (
    MAX_ANSWERS_BYTES,
    MAX_CONTAINERS,
    CallRules,
    Calls,
    parse_calls,
)
from hmas.gateway.shell import GatewayShell
from tests.gateway.gateway_harness import CHAT, PATH, client, error_of, gateway
from tests.gateway.gateway_script import Mesh, request, submits

MESSAGES = [{"role": "user", "content": "Hello there"}]
RULES = CallRules(tenant="acme", recognised=True)


def calls_of(path: str, **fields: Any) -> Calls:
    return parse_calls(path, orjson.dumps({"model": "m"} | fields), RULES)


# --- reading


def test_the_answers_to_one_prompt_share_its_bytes() -> None:
    for seed in (None, 7):
        calls = calls_of(CHAT_PATH, messages=MESSAGES, n=32, seed=seed)
        assert (len(calls), len(calls.prompts)) == (32, 1)
        rests = {id(call.rest) for call in calls.each()}
        assert rests == {id(calls.prompts[0].rest)}
        assert [call.seed for call in calls.each()] == [None if seed is None else 7 + i for i in range(32)]


def test_the_seed_of_each_answer_can_be_written() -> None:
    last = list(calls_of(CHAT_PATH, messages=MESSAGES, n=3, seed=2**64 - 4).each())[-1]
    assert b'"seed":18446744073709551614' in run_body("m", last.rest, None, {}, last.seed)[0]
    with pytest.raises(InvalidRequest, match="must be below 18446744073709551613 for 3 answers"):
        calls_of(CHAT_PATH, messages=MESSAGES, n=3, seed=2**64 - 3)


def test_what_prompts_have_in_common_is_written_once_until_their_calls_are_made() -> None:
    calls = calls_of(COMPLETIONS_PATH, prompt=["a", "bb", [1]], n=2, user="u" * 1000, seed=1)
    assert (len(calls), len(calls.prompts)) == (6, 3)
    assert max(len(call.rest) for call in calls.prompts) < 100
    made = list(calls.each())
    assert calls.size == sum(len(call.rest) for call in made)
    assert [orjson.loads(b"{" + call.rest)["prompt"] for call in made] == ["a", "a", "bb", "bb", [1], [1]]
    assert len({id(call.rest) for call in made[:2]}) == 1
    assert len({call.digest for call in calls.prompts}) == 3
    assert len({call.chain for call in calls.prompts}) == 3


def test_several_prompts_may_be_all_that_a_body_holds() -> None:
    assert [call.rest for call in calls_of(COMPLETIONS_PATH, prompt=["a", "b"]).each()] == [
        b'"prompt":"a"}', b'"prompt":"b"}'
    ]  # fmt: skip


def test_the_bytes_for_engines_are_bounded_whatever_a_body_asks_for() -> None:
    most = MAX_ANSWERS_BYTES // 32
    assert len(calls_of(CHAT_PATH, messages=MESSAGES, n=32, user="u" * (most - 100))) == 32
    with pytest.raises(InvalidRequest, match="ask for fewer answers") as caught:
        calls_of(CHAT_PATH, messages=MESSAGES, n=32, user="u" * most)
    assert (caught.value.error.status, caught.value.error.param) == (400, "n")
    with pytest.raises(InvalidRequest, match="ask for fewer answers") as caught:
        calls_of(COMPLETIONS_PATH, prompt=["a"] * 32, user="u" * most)
    assert caught.value.error.param == "prompt"
    assert len(calls_of(CHAT_PATH, messages=MESSAGES, user="u" * 24 * 2**20)) == 1


def with_text(text: str, lists: int) -> bytes:
    return b'{"model":"m","prompt":%b,"x":[%b0]}' % (orjson.dumps(text), b"[]," * lists)


@pytest.mark.parametrize("text", ["", "[" * 2**18, '\\"[{' * 2**17, "\\\\" + "[{" * 2**17 + '"', "\\"])
def test_lists_and_objects_are_bounded_and_those_in_texts_are_none(text: str) -> None:
    most = MAX_CONTAINERS - 2  # beside the body itself and the list
    assert len(parse_calls(COMPLETIONS_PATH, with_text(text, most), RULES)) == 1
    with pytest.raises(InvalidRequest, match="divide it into several requests") as caught:
        parse_calls(COMPLETIONS_PATH, bytearray(with_text(text, most + 1)), RULES)
    assert caught.value.error.status == 400


# --- limits


def limited(**limits: Any) -> Mesh:
    mesh = Mesh("w1", config=GatewayConfig(gateway="g", max_requests=8, max_held_bytes=1000))
    mesh.play(TenantsChanged((TenantLimits(tenant="t", **limits),)))
    return mesh


def received(name: str, siblings: Volume = NO_VOLUME, *, admitted: bool = False, body_bytes: int = 0) -> GatewayEvent:
    made = request(name, tenant="t", prompt_tokens=10)
    return RequestReceived(made, body_bytes=body_bytes, siblings=siblings, admitted=admitted)


@pytest.mark.parametrize(
    ("limits", "fits", "too_much", "outcome"),
    [
        ({"max_in_flight": 4}, Volume(3), Volume(4), Outcome.TENANT_IN_FLIGHT),
        ({"max_queued": 4}, Volume(3), Volume(4), Outcome.TENANT_QUEUE_FULL),
        ({}, Volume(7), Volume(8), Outcome.POOL_QUEUE_FULL),
        ({}, Volume(1, body_bytes=900), Volume(1, body_bytes=901), Outcome.POOL_QUEUE_FULL),
    ],
)
def test_bounds_are_asked_for_all_answers_with_the_first(
    limits: dict[str, Any], fits: Volume, too_much: Volume, outcome: Outcome
) -> None:
    (refused,) = limited(**limits).play(received("r0", too_much, body_bytes=100))
    assert isinstance(refused, Refuse)
    assert refused.outcome is outcome
    assert submits(limited(**limits).play(received("r0", fits, body_bytes=100))) == [("r0", "w1", 1)]


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [({"requests_per_min": 4}, Outcome.TENANT_REQUEST_RATE), ({"tokens_per_min": 40}, Outcome.TENANT_TOKEN_RATE)],
)
def test_rates_are_asked_for_all_answers_and_charged_with_each(limits: dict[str, Any], outcome: Outcome) -> None:
    mesh = limited(**limits)
    mesh.play(received("r0"))
    (refused,) = mesh.play(received("r1", Volume(3, 30)))
    assert isinstance(refused, Refuse)
    assert refused.outcome is outcome
    assert submits(mesh.play(received("r2", Volume(2, 20)))) == [("r2", "w1", 1)]
    for name in ("r3", "r4"):
        assert submits(mesh.play(received(name, admitted=True))) == [(name, "w1", 1)]
    (refused,) = mesh.play(received("r5"))
    assert isinstance(refused, Refuse)


def test_answers_beyond_a_whole_burst_are_admitted_together_when_the_bucket_is_full() -> None:
    mesh = limited(tokens_per_min=40)
    assert submits(mesh.play(received("r0", Volume(5, 50)))) == [("r0", "w1", 1)]
    assert submits(mesh.play(received("r1", admitted=True))) == [("r1", "w1", 1)]


async def test_a_refused_body_makes_no_other_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tenants.yaml"
    digest = sha256(b"hmas-one").hexdigest()
    path.write_text(f"tenants:\n  acme:\n    max_in_flight: 4\n    keys: [{{id: k1, sha256: '{digest}'}}]\n")
    opened, of_shell = list[str](), GatewayShell.open

    def note(shell: GatewayShell, call: Any, made: Any, *args: Any, **more: Any) -> Any:
        opened.append(made.id)
        return of_shell(shell, call, made, *args, **more)

    monkeypatch.setattr(GatewayShell, "open", note)
    async with gateway(tenants_file=path, grants=False) as g, client(g) as c:
        got = await c.post(PATH, json={**CHAT, "n": 32}, headers={"x-api-key": "hmas-one"})
        assert got.status_code == 429
        assert "counts as 32, one for each answer" in error_of(got)["message"]
        assert len(opened) == 1
        assert g.workers.submits == []
        assert g.shell.live == 0

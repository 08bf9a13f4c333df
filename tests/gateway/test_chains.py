"""The chain of a body, read once while the body is checked, and the job that the gateway's agent finds by it."""

from typing import Any

import orjson
import pytest

from hmas.contracts.gateway import RequestReceived
from hmas.contracts.job import NO_CHAIN, LinkedBy, PrefixChain, StageLinked
from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.contracts.request import Request, Slo
from hmas.gateway.agent import GatewayAgent, GatewayConfig
from hmas.gateway.openai.body import CallRules, parse_call
from hmas.gateway.tenants.terms import declared_job, read_headers
from tests.builders.requests import client_request

TASK = {"role": "user", "content": "a task"}
ANSWER = {"role": "assistant", "content": "an answer"}
PATHS: dict[str, dict[str, Any]] = {
    CHAT_PATH: {"messages": [TASK]},
    COMPLETIONS_PATH: {"prompt": "a task"},
    "/v1/responses": {"input": "a task"},
    "/v1/messages": {"messages": [TASK], "max_tokens": 1},
}
LONGER: dict[str, dict[str, Any]] = {
    CHAT_PATH: {"messages": [TASK, ANSWER]},
    "/v1/responses": {"input": [TASK, ANSWER]},
    "/v1/messages": {"messages": [TASK, ANSWER], "max_tokens": 1},
}


def _chain(path: str, fields: dict[str, Any], tenant: str = "acme") -> PrefixChain:
    return parse_call(path, orjson.dumps({"model": "m", **fields}), CallRules(tenant=tenant)).chain


@pytest.mark.parametrize("path", PATHS)
def test_each_form_with_an_answer_has_a_chain_of_its_tenant(path: str) -> None:
    chain = _chain(path, PATHS[path])
    assert chain.whole
    assert chain.nodes
    assert not set(chain.nodes) & set(_chain(path, PATHS[path], "globex").nodes)


@pytest.mark.parametrize("path", PATHS)
def test_a_prompt_that_is_not_to_be_followed_has_no_chain(path: str) -> None:
    body = orjson.dumps({"model": "m", **PATHS[path]})
    assert parse_call(path, body, CallRules(tenant="acme", follow_prompts=False)).chain is NO_CHAIN


@pytest.mark.parametrize("path", LONGER)
def test_the_next_prompt_goes_on_from_the_chain(path: str) -> None:
    assert _chain(path, LONGER[path]).nodes[0] == _chain(path, PATHS[path]).nodes[0]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_a_system_prompt_of_its_own_field_stands_before_the_messages(path: str) -> None:
    field = "instructions" if path == "/v1/responses" else "system"
    bare, led = _chain(path, PATHS[path]), _chain(path, PATHS[path] | {field: "policy"})
    assert not set(bare.nodes) & set(led.nodes)
    assert bare.thread == led.thread


def test_tools_and_the_model_stand_before_everything() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    bodies: list[dict[str, Any]] = [{}, {"tools": tools}, {"model": "other"}]
    chains = [_chain(CHAT_PATH, PATHS[CHAT_PATH] | body) for body in bodies]
    assert len({chain.nodes[0] for chain in chains}) == 3


def test_token_ids_have_a_chain_that_the_next_prompt_goes_on_from() -> None:
    short, long = ([1] * 4000, [1] * 8000)
    assert _chain(COMPLETIONS_PATH, {"prompt": long}).nodes[0] == _chain(COMPLETIONS_PATH, {"prompt": short}).nodes[0]


def test_a_form_without_an_answer_has_no_chain() -> None:
    assert _chain("/v1/embeddings", {"input": "a text"}) is NO_CHAIN


@pytest.mark.parametrize(
    ("headers", "job"),
    [
        ([(b"x-hmas-job", b"j-1"), (b"x-session-id", b"s-1")], "j-1"),
        ([(b"x-claude-code-session-id", b"s-2")], "s-2"),
        ([(b"x-dynamo-session-id", b"s-3")], "s-3"),
        ([(b"session_id", b"s-4")], "s-4"),
        ([(b"session-id", b"s-8")], "s-8"),
        ([(b"x-session-affinity", b"s-5")], "s-5"),
        ([(b"x-smg-routing-key", b"s-6")], "s-6"),
        ([(b"x-hmas-job", b"not a name"), (b"x-session-id", b"s-7")], "s-7"),
        ([(b"x-hmas-job", b"a" * 129)], ""),
    ],
)
def test_a_job_is_named_by_the_first_header_that_holds_a_name(headers: list[tuple[bytes, bytes]], job: str) -> None:
    assert declared_job(read_headers(headers)) == job


def _request(number: int, chain: PrefixChain) -> Request:
    return client_request(
        f"r{number}", tenant="acme", prompt_tokens=10, slo=Slo(1.0, 0.1), importance=1.0, prefix=chain
    )


def test_the_agent_links_a_request_by_its_chain_or_its_name_and_says_nothing_without_both() -> None:
    agent = GatewayAgent(GatewayConfig(gateway="g"))
    events = [
        RequestReceived(_request(0, _chain(CHAT_PATH, PATHS[CHAT_PATH]))),
        RequestReceived(_request(1, _chain(CHAT_PATH, LONGER[CHAT_PATH]))),
        RequestReceived(_request(2, NO_CHAIN), job="j-1"),
        RequestReceived(_request(3, NO_CHAIN)),
    ]
    found = [[e.stage for e in agent.step(0.0, event) if isinstance(e, StageLinked)] for event in events]
    assert [[stage.linked for stage in each] for each in found] == [
        [LinkedBy.NEW],
        [LinkedBy.PREFIX],
        [LinkedBy.DECLARED],
        [],
    ]
    assert found[1][0].job == found[0][0].job
    assert found[1][0].parent == "r0"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (COMPLETIONS_PATH, {"prompt": "a task", "messages": [1], "input": [2], "tools": {}}),
        ("/v1/responses", {"input": [{"role": ["user"], "content": 1}, {"role": {}}], "messages": [1]}),
        (CHAT_PATH, {"messages": [{"role": "user", "name": [1], "tool_calls": 3}], "input": 1, "prompt": 2}),
        ("/v1/messages", {"messages": [TASK], "max_tokens": 1, "input": [1], "prompt": [[]]}),
    ],
)
def test_fields_of_other_forms_and_odd_values_do_no_harm(path: str, fields: dict[str, Any]) -> None:
    assert _chain(path, fields).nodes

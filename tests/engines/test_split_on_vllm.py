"""One answer from two real vLLM engines, stock, through the mesh: NIXL hands the KV over."""

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import httpx
import pytest

from tests.clients.cases import GENERATING, TOOL, Case, Clients, a_coding_agents_session_of_messages
from tests.conftest import eventually
from tests.engines.conftest import started
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment, Unavailable
from tests.engines.handing_over import LEASE_S, PUSH, STOCK, HandingOver
from tests.engines.test_clients_on_vllm import FLAGS
from tests.engines.through_the_mesh import PATIENCE_S

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
CHAT = "/v1/chat/completions"
ANSWER, AT_ONCE = 24, 8
VOCABULARY, LONGEST = 900, 1_800


CONNECTORS: dict[str, dict[str, Any]] = {"nixl-pull": STOCK, "nixl-push": PUSH}
pulled = pytest.mark.parametrize("connector", ["nixl-pull"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=CONNECTORS)
def connector(request: pytest.FixtureRequest) -> str:
    """How the engines hand KV over: the one that answers reads it, or the one that computed it sends it."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def pair(
    connector: str, environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[HandingOver, HandingOver]]:
    """The engine of the prompts and that of the answers."""
    try:
        flags = (*FLAGS, "--enable-prompt-tokens-details")
        folders = (tmp_path_factory.mktemp(name) for name in ("prompts", "answers"))
        made = (HandingOver(environment, folder, *flags, connector=CONNECTORS[connector]) for folder in folders)
        first, second = made
    except Unavailable as reason:
        pytest.skip(f"NIXL cannot be had here: {reason}")
    with started(first, second):
        yield first, second


@pytest.fixture(scope="module")
def mesh(
    connector: str,
    pair: tuple[HandingOver, HandingOver],
    tmp_path_factory: pytest.TempPathFactory,
    start_mesh: Callable[..., Any],
) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("mesh")
    named = [
        {"url": engine.url, "kv_transfer": connector, "role": role}
        for engine, role in zip(pair, ("prefill", "decode"), strict=True)
    ]
    (folder / "engines.json").write_text(json.dumps(named))
    args = ("--engine", f"file+{folder / 'engines.json'}", "--model", MODEL, "--workers", "1")
    with start_mesh(folder / "mesh", *args, env={"HMAS_SPLIT": "always"}) as running:
        assert (
            httpx.post(f"{running.url}/v1/completions", json=body_of([1, 2, 3]), timeout=PATIENCE_S).status_code == 200
        )
        yield running


def body_of(prompt: list[int]) -> dict[str, Any]:
    return {
        "model": MODEL, "prompt": prompt, "max_tokens": ANSWER, "temperature": 0.0, "ignore_eos": True,
        "return_token_ids": True,
    }  # fmt: skip


def prompts(draw: Random, count: int) -> list[list[int]]:
    """Of all lengths, around the size of a block, and three in ten with a shared beginning."""

    def of(tokens: int) -> list[int]:
        return [draw.randrange(10, VOCABULARY) for _ in range(tokens)]

    begin = of(700)
    found = [of(tokens) for tokens in (1, 2, 127, 128, 129, 255, 256, 257, LONGEST)]
    found += [begin + of(draw.randint(1, 600)) for _ in range(count * 3 // 10)]
    found += [of(draw.randint(1, LONGEST)) for _ in range(count - len(found))]
    draw.shuffle(found)
    return found


async def asked(url: str, bodies: list[dict[str, Any]]) -> list[list[int]]:
    """The token ids of the answers to completions, several asked for at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(client: httpx.AsyncClient, body: dict[str, Any]) -> list[int]:
        async with gate:
            answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["kv_transfer_params"] is None
        found: list[int] = answer.json()["choices"][0]["token_ids"]
        return found

    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        return await asyncio.gather(*(one(client, body) for body in bodies))


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
async def test_two_engines_give_the_tokens_of_one_and_the_second_computes_no_prompt(
    pair: tuple[HandingOver, HandingOver], mesh: Any, count: int
) -> None:
    """Eight at a time. A mesh that served them whole would give the same tokens, but not these counts."""
    first, second = pair
    bodies = [body_of(prompt) for prompt in prompts(Random(count), count)]
    before = [engine.metric("vllm:generation_tokens_total") for engine in pair]
    computed, read = second.prompt_tokens("local_compute"), second.prompt_tokens("external_kv_transfer")
    split = await asked(mesh.url, bodies)
    after = [engine.metric("vllm:generation_tokens_total") for engine in pair]
    computed, read = (
        second.prompt_tokens("local_compute") - computed,
        second.prompt_tokens("external_kv_transfer") - read,
    )
    assert [later - earlier for later, earlier in zip(after, before, strict=True)] == [
        len(bodies),
        ANSWER * len(bodies),
    ]
    whole = await asked(first.url, bodies)
    tokens = sum(len(body["prompt"]) for body in bodies)
    print(
        f"{len(bodies)} prompts, {tokens} tokens: {read:.0f} read and {computed:.0f} "
        f"computed where it was answered; {len(set(map(tuple, whole)))} different answers"
    )
    assert split == whole
    assert computed <= len(bodies)
    assert read > 0
    for engine in pair:
        await eventually(partial(getattr, engine, "is_empty"), LEASE_S + 3)


# Without what was cached, Anthropic's counts of input tokens do not grow from turn to turn.
CASES = [case for case in GENERATING if case is not a_coding_agents_session_of_messages]


@pulled
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_a_clients_case_is_answered_by_two(case: Case, mesh: Any) -> None:
    async with Clients(mesh.url, MODEL) as clients:
        await clients.passes(case)


ASKED = [{"role": "user", "content": "Tell me of towns and their countries, please."}]
CALLED = {"type": "function", "function": {"name": "look_up", "parameters": TOOL}}
OF_FORM: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": ASKED, "max_tokens": ANSWER}),
    "completion": ("/v1/completions", {"prompt": "Tell me of towns", "max_tokens": ANSWER}),
    "response": ("/v1/responses", {"input": "Tell me of towns", "max_output_tokens": ANSWER}),
    "message": ("/v1/messages", {"messages": ASKED, "max_tokens": ANSWER}),
    "schema": (CHAT, {"messages": ASKED, "max_tokens": 60, "response_format": {
        "type": "json_schema", "json_schema": {"name": "town", "schema": TOOL | {"additionalProperties": False}}}}),
    "tool": (CHAT, {"messages": ASKED, "max_tokens": 60, "tools": [CALLED],
                    "tool_choice": {"type": "function", "function": {"name": "look_up"}}}),
    "logprobs": (CHAT, {"messages": ASKED, "max_tokens": ANSWER, "logprobs": True, "top_logprobs": 2}),
    "least": (CHAT, {"messages": ASKED, "max_tokens": ANSWER, "min_tokens": ANSWER}),
}  # fmt: skip


NAMES = ("id", "call_id", "type", "usage")  # of fields that differ each time, or say nothing of the answer


def said(answer: httpx.Response) -> list[Any]:
    """What an answer says: its texts and numbers in their order, or the texts of its events put together."""
    if "event-stream" not in answer.headers["content-type"]:
        found = answer.json()
        return list(_values(found.get("choices") or found.get("output") or found["content"]))
    events = (json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {"))
    parts = (each.get("choices") or each.get("delta") for each in events)  # `delta` of named events
    # An event may hold several tokens, whose log probabilities stand beside their text.
    return ["".join(text for part in parts for text in _values(part, "logprobs") if isinstance(text, str))]


def _values(value: Any, but: str = "") -> Iterator[Any]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name not in (*NAMES, but):
                yield from _values(each, but)
    elif isinstance(value, list):
        for each in value:
            yield from _values(each, but)
    elif value is not None:
        yield round(value, 3) if isinstance(value, float) else value


@pulled
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", OF_FORM)
def test_every_form_says_what_one_engine_says(
    name: str, stream: bool, pair: tuple[HandingOver, HandingOver], mesh: Any
) -> None:
    path, fields = OF_FORM[name]
    body = {"model": MODEL, "temperature": 0.0, "stream": stream} | fields
    computed = pair[0].metric("vllm:generation_tokens_total")
    answers = [httpx.post(f"{url}{path}", json=body, timeout=PATIENCE_S) for url in (mesh.url, pair[0].url)]
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    assert pair[0].metric("vllm:generation_tokens_total") > computed
    split, whole = map(said, answers)
    assert len("".join(each for each in whole if isinstance(each, str))) > 20
    assert split == whole


@pulled
@pytest.mark.parametrize("stream", [False, True])
def test_what_was_cached_is_told_as_the_engine_of_the_prompt_has_it(
    stream: bool, pair: tuple[HandingOver, HandingOver], mesh: Any
) -> None:
    body = (
        body_of([5 + stream] * 300)
        | {"stream": stream}
        | ({"stream_options": {"include_usage": True}} if stream else {})
    )
    told = []
    for url in (mesh.url, mesh.url, pair[0].url, pair[0].url):  # each has a cache of its own: the mesh's has a salt
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=PATIENCE_S)
        last = answer.text.split("data: ")[-2] if stream else answer.text
        told.append(json.loads(last)["usage"]["prompt_tokens_details"])
    assert (told[0] or {}).get("cached_tokens", 0) == 0
    assert told[1] == told[3]
    assert told[1]["cached_tokens"] >= 128

"""What the official clients of `openai` and `anthropic` ask of an API, sync and async: the same cases for every engine
behind the mesh. A case asserts what the client makes of the answer."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.clients import sessions

HELLO: list[Any] = [{"role": "user", "content": "Say hello to the whole world, please."}]
SAID: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Say hello to the whole world, please."}]}]
SYSTEM: list[Any] = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
TOOL: dict[str, Any] = {
    "type": "object",
    "properties": {"place": {"type": "string", "description": "A town, and its country"}},
    "required": ["place"],
}
TIMEOUT_S = 240.0
AGENT = Path(__file__).with_name("coding_agent.json")


class Clients:
    """The clients of one API, as their users make them: nothing but its URL is set."""

    def __init__(self, url: str, model: str) -> None:
        self.url, self.model = url, model
        more: dict[str, Any] = {"api_key": "unused", "max_retries": 0, "timeout": TIMEOUT_S}
        self.openai = openai.OpenAI(base_url=f"{url}/v1", **more)
        self.async_openai = openai.AsyncOpenAI(base_url=f"{url}/v1", **more)
        self.anthropic = anthropic.Anthropic(base_url=url, **more)
        self.async_anthropic = anthropic.AsyncAnthropic(base_url=url, **more)

    async def __aenter__(self) -> "Clients":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.openai.close()
        self.anthropic.close()
        await self.async_openai.close()
        await self.async_anthropic.close()

    async def passes(self, case: "Case") -> None:
        done = case(self)
        if inspect.isawaitable(done):
            await done


Case = Callable[[Clients], Any]


# --- OpenAI: chat ---


def chat(c: Clients) -> None:
    answer = c.openai.chat.completions.create(model=c.model, messages=HELLO, max_tokens=9)
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 9


def chat_streamed(c: Clients) -> None:
    chunks = list(c.openai.chat.completions.create(model=c.model, messages=HELLO, max_tokens=9, stream=True))
    assert chunks[-1].choices[0].finish_reason in ("length", "stop")
    assert all(chunk.usage is None for chunk in chunks)


async def chat_async(c: Clients) -> None:
    answer = await c.async_openai.chat.completions.create(model=c.model, messages=HELLO, max_tokens=9)
    assert answer.choices[0].finish_reason in ("length", "stop")


async def chat_streamed_async(c: Clients) -> None:
    stream = await c.async_openai.chat.completions.create(model=c.model, messages=HELLO, max_tokens=9, stream=True)
    assert [chunk async for chunk in stream][-1].choices[0].finish_reason in ("length", "stop")


def chat_of_a_service_tier(c: Clients) -> None:
    for tier in ("flex", "priority", "auto"):
        answer = c.openai.chat.completions.with_raw_response.create(
            model=c.model, messages=HELLO, max_tokens=3, service_tier=tier
        )
        assert answer.headers.get("x-hmas-service-tier", "auto") == tier


# --- OpenAI: responses ---


def response(c: Clients) -> None:
    answer = c.openai.responses.create(model=c.model, input="Say hello.", instructions="Be brief.", max_output_tokens=9)
    assert answer.object == "response"
    assert answer.status in ("completed", "incomplete")
    assert answer.usage is not None
    assert 1 <= answer.usage.output_tokens <= 9
    assert answer.usage.input_tokens > 0


def response_of_items(c: Clients) -> None:
    given: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "How is the weather?"}]},
        {"role": "assistant", "content": "Where?"},
        {"role": "user", "content": "Here."},
    ]
    answer = c.openai.responses.create(model=c.model, input=given, max_output_tokens=9)
    assert answer.output


def response_streamed(c: Clients) -> None:
    events = list(c.openai.responses.create(model=c.model, input="Say hello.", max_output_tokens=9, stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")
    assert kinds.count("response.output_text.delta") >= 1
    last: Any = events[-1]
    assert last.response.usage.output_tokens >= 1


async def response_async(c: Clients) -> None:
    answer = await c.async_openai.responses.create(model=c.model, input="Say hello.", max_output_tokens=9)
    assert answer.usage is not None


async def response_streamed_async(c: Clients) -> None:
    stream = await c.async_openai.responses.create(model=c.model, input="Say hello.", max_output_tokens=9, stream=True)
    assert [event.type async for event in stream][-1] in ("response.completed", "response.incomplete")


def a_coding_agents_request(c: Clients) -> None:
    """As a coding agent sent it: every field and tool, with other words in the place of its long texts."""
    body = json.loads(AGENT.read_text()) | {"model": c.model, "max_output_tokens": 16}
    assert body["stream"]
    with httpx.stream("POST", f"{c.url}/v1/responses", json=body, timeout=TIMEOUT_S) as answer:
        assert answer.status_code == 200, answer.read()
        names = [line[7:] for line in answer.iter_lines() if line.startswith("event: ")]
    assert names[0] == "response.created"
    assert names[-1] in ("response.completed", "response.incomplete")
    assert any(name.endswith(".delta") for name in names)


def a_coding_agents_session(c: Clients) -> None:
    """Every turn is answered, and each has more to read than the one before: what tools said counts."""
    read = []
    for body in sessions.responses():
        more = {"extra_body": {"client_metadata": body.pop("client_metadata")}}
        told = body | more | {"model": c.model, "max_output_tokens": 12}
        events: list[Any] = list(c.openai.responses.create(**told))
        assert events[0].type == "response.created"
        last: Any = events[-1]
        assert last.type in ("response.completed", "response.incomplete")
        assert any(event.type.endswith(".delta") for event in events)
        assert 1 <= last.response.usage.output_tokens <= 12
        read.append(last.response.usage.input_tokens)
    assert len(read) == 7
    assert sorted(set(read)) == read


# --- Anthropic ---


def message(c: Clients) -> None:
    answer = c.anthropic.messages.create(model=c.model, max_tokens=9, messages=HELLO)
    assert (answer.type, answer.role) == ("message", "assistant")
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.input_tokens > 0
    assert 1 <= answer.usage.output_tokens <= 9


def message_with_a_system_prompt(c: Clients) -> None:
    bare = c.anthropic.messages.create(model=c.model, max_tokens=3, messages=SAID)
    full = c.anthropic.messages.create(model=c.model, max_tokens=3, messages=SAID, system=SYSTEM)
    assert full.usage.input_tokens > bare.usage.input_tokens


def message_streamed(c: Clients) -> None:
    with c.anthropic.messages.stream(model=c.model, max_tokens=9, messages=HELLO) as stream:
        texts = list(stream.text_stream)
        last = stream.get_final_message()
    assert texts
    assert last.usage.output_tokens >= 1
    assert last.stop_reason in ("end_turn", "max_tokens")


async def message_async(c: Clients) -> None:
    answer = await c.async_anthropic.messages.create(model=c.model, max_tokens=9, messages=HELLO)
    assert answer.usage.output_tokens >= 1


async def message_streamed_async(c: Clients) -> None:
    async with c.async_anthropic.messages.stream(model=c.model, max_tokens=9, messages=HELLO) as stream:
        assert "".join([text async for text in stream.text_stream])


def message_tokens(c: Clients) -> None:
    bare = c.anthropic.messages.count_tokens(model=c.model, messages=HELLO)
    tools: Any = [{"name": "weather", "description": "Tells the weather", "input_schema": TOOL}]
    assert bare.input_tokens > 3
    assert (
        c.anthropic.messages.count_tokens(model=c.model, messages=HELLO, tools=tools).input_tokens >= bare.input_tokens
    )


def a_coding_agents_session_of_messages(c: Clients) -> None:
    """As the one of responses; the agent asks for the tokens of its last turn, too. Its client adds `?beta=true`."""
    read = []
    for body in sessions.messages():
        del body["stream"]  # which the call says
        told = body | {"model": c.model, "max_tokens": 12, "extra_body": {"temperature": body.pop("temperature")}}
        with c.anthropic.beta.messages.stream(**told) as stream:
            kinds = [event.type for event in stream]
            last = stream.get_final_message()
        assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
        assert kinds.count("content_block_start") == kinds.count("content_block_stop") >= 1
        assert last.stop_reason in ("end_turn", "max_tokens", "tool_use")
        assert 1 <= last.usage.output_tokens <= 12
        read.append(last.usage.input_tokens)
    assert len(read) == 6
    assert sorted(set(read)) == read
    asked = {name: told[name] for name in ("model", "system", "messages", "tools")}
    assert c.anthropic.beta.messages.count_tokens(**asked).input_tokens == read[-1]


# --- the rest ---


def tokenize(c: Clients) -> None:
    answer = httpx.post(f"{c.url}/tokenize", json={"model": c.model, "prompt": "the of and to"}, timeout=TIMEOUT_S)
    assert answer.status_code == 200
    assert answer.json()["count"] == len(answer.json()["tokens"]) > 0


def an_engines_refusal(c: Clients) -> None:
    """Of a context that is too long, in the words of each API."""
    prompt = "the " * 200_000
    with pytest.raises(openai.BadRequestError) as refused:
        c.openai.responses.create(model=c.model, input=prompt)
    assert refused.value.message
    with pytest.raises(anthropic.BadRequestError) as refused_too:
        c.anthropic.messages.create(model=c.model, max_tokens=9, messages=[{"role": "user", "content": prompt}])
    body: Any = refused_too.value.body
    assert body["type"] == "error"


def an_unknown_model(c: Clients) -> None:
    with pytest.raises(anthropic.NotFoundError, match="none"):
        c.anthropic.messages.create(model="none", max_tokens=9, messages=HELLO)


# --- engines that embed and compare ---


def embeddings(c: Clients) -> None:
    """The client asks for base64 unless told otherwise."""
    answer = c.openai.embeddings.create(model=c.model, input=["Hello there", "Good-bye"])
    assert [entry.index for entry in answer.data] == [0, 1]
    assert len(answer.data[0].embedding) == len(answer.data[1].embedding) > 1
    assert answer.usage.prompt_tokens > 0


async def embeddings_async(c: Clients) -> None:
    answer = await c.async_openai.embeddings.create(model=c.model, input="Hello there", encoding_format="float")
    assert isinstance(answer.data[0].embedding[0], float)


def rerank(c: Clients) -> None:
    body = {"model": c.model, "query": "weather", "documents": ["It rains.", "Cats sleep."]}
    answer = httpx.post(f"{c.url}/v1/rerank", json=body, timeout=TIMEOUT_S)
    assert sorted(result["index"] for result in answer.json()["results"]) == [0, 1]


def score(c: Clients) -> None:
    body = {"model": c.model, "text_1": "weather", "text_2": ["It rains.", "Cats sleep."]}
    answer = httpx.post(f"{c.url}/v1/score", json=body, timeout=TIMEOUT_S)
    assert [entry["index"] for entry in answer.json()["data"]] == [0, 1]


GENERATING: tuple[Case, ...] = (
    chat, chat_streamed, chat_async, chat_streamed_async, chat_of_a_service_tier, response, response_of_items,
    response_streamed, a_coding_agents_request, a_coding_agents_session, response_async, response_streamed_async,
    message, message_with_a_system_prompt, message_streamed, message_async, message_streamed_async, message_tokens,
    a_coding_agents_session_of_messages, tokenize, an_engines_refusal, an_unknown_model,
)  # fmt: skip
POOLING: tuple[Case, ...] = (embeddings, embeddings_async, rerank, score)

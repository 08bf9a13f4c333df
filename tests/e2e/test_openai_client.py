"""The official client, sync and async, stream and not, against the mesh."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import OPS_HEADERS
from tests.e2e.recording_proxy import RecordingProxy

pytestmark = pytest.mark.e2e
HELLO: list[Any] = [{"role": "user", "content": "Say hello to the whole world, please."}]


def test_chat_completion(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="emulated", messages=HELLO, max_tokens=12)
    assert answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 12


def test_chat_stream(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="emulated", messages=HELLO, max_tokens=12, stream=True))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text
    assert chunks[-1].choices[0].finish_reason in ("length", "stop")
    assert all(c.usage is None for c in chunks)  # the usage the gateway asked for stays inside


def test_usage_comes_when_asked_for(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="emulated", messages=HELLO, max_tokens=7, stream=True, stream_options={"include_usage": True}
    )
    last = list(stream)[-1]
    assert last.choices == []
    assert last.usage is not None
    assert 1 <= last.usage.completion_tokens <= 7


@pytest.mark.parametrize("stream", [False, True])
def test_text_completion(client: openai.OpenAI, stream: bool) -> None:
    answer = client.completions.create(model="emulated", prompt="Once upon a time", max_tokens=9, stream=stream)
    parts = list(answer) if isinstance(answer, openai.Stream) else [answer]
    assert "".join(p.choices[0].text for p in parts if p.choices)


async def test_many_at_once_with_the_async_client(async_client: openai.AsyncOpenAI) -> None:
    async def plain(i: int) -> int:
        answer = await async_client.chat.completions.create(
            model="emulated", messages=[{"role": "user", "content": f"Question {i}"}], max_tokens=5
        )
        return len(answer.choices[0].message.content or "")

    async def streamed(i: int) -> int:
        stream = await async_client.chat.completions.create(
            model="emulated", messages=[{"role": "user", "content": f"Question {i}"}], max_tokens=5, stream=True
        )
        return len("".join([c.choices[0].delta.content or "" async for c in stream if c.choices]))

    lengths = await asyncio.gather(*(plain(i) for i in range(24)), *(streamed(i) for i in range(24)))
    assert len(lengths) == 48
    assert all(lengths)


def test_the_engine_receives_what_the_mesh_does_not_know(mesh: Any, tmp_path: Path, start_mesh: Any) -> None:
    """Tools, the response format and an engine's own fields reach it as the client wrote them."""
    tools: list[Any] = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    proxy = RecordingProxy(mesh.state["engine_urls"][0])
    with (
        start_mesh(tmp_path, "--engine", proxy.url, "--max-num-seqs", "8") as other,
        openai.OpenAI(base_url=f"{other.url}/v1", api_key="unused", max_retries=0, timeout=30) as client,
    ):
        client.chat.completions.create(
            model="emulated",
            messages=HELLO,
            max_tokens=4,
            tools=tools,
            response_format={"type": "json_object"},
            extra_body={"top_k": 7, "chat_template_kwargs": {"a": 1}},
        )
    proxy.close()
    (received,) = proxy.bodies("/v1/chat/completions")
    assert received["messages"] == HELLO
    assert received["tools"] == tools
    assert received["response_format"] == {"type": "json_object"}
    assert received["top_k"] == 7
    assert received["chat_template_kwargs"] == {"a": 1}


def test_replayed_lengths_are_exact(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="emulated", messages=HELLO, max_tokens=1000, extra_body={"hmas_replay": {"output_tokens": 23}}
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 23


def test_models_and_operations(client: openai.OpenAI, mesh: Any) -> None:
    cards = list(client.models.list())
    assert [c.id for c in cards] == ["emulated"]
    for path in ("/health", "/ready", "/version", "/openapi.json"):
        assert httpx.get(mesh.url + path).status_code == 200, path
    ops = mesh.state["ops_urls"]["gateway"]
    for path in ("/health", "/ready", "/metrics", "/docs", "/openapi.json", "/hmas/timeline"):
        assert httpx.get(ops + path, headers=OPS_HEADERS[ops]).status_code == 200, path
    assert httpx.get(mesh.url + "/metrics").status_code == 404
    assert "/v1/chat/completions" in httpx.get(mesh.url + "/openapi.json").json()["paths"]


def test_the_request_id_is_echoed_or_made(mesh: Any) -> None:
    body = {"model": "emulated", "messages": HELLO, "max_tokens": 2}
    given = httpx.post(f"{mesh.url}/v1/chat/completions", json=body, headers={"X-Request-Id": "mine-1"}, timeout=30)
    made = httpx.post(f"{mesh.url}/v1/chat/completions", json=body, timeout=30)
    assert given.headers["x-request-id"] == "mine-1"
    assert made.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/v1/admin", "/pause", "/sleep", "/v1/load_lora_adapter", "/abort_requests"])
def test_nothing_of_an_engines_admin_api_is_reachable(mesh: Any, path: str) -> None:
    answer = httpx.post(mesh.url + path, json={})
    assert answer.status_code in (404, 405)
    assert answer.json()["error"]["message"]


async def test_a_client_that_leaves_frees_the_engine(async_client: openai.AsyncOpenAI, mesh: Any) -> None:
    def running() -> float:
        total = 0.0
        for url in mesh.state["engine_urls"]:
            for line in httpx.get(f"{url}/metrics").text.splitlines():
                if line.startswith("vllm:num_requests_running"):
                    total += float(line.rsplit(" ", 1)[1])
        return total

    stream = await async_client.chat.completions.create(
        model="emulated",
        messages=HELLO,
        max_tokens=900,
        stream=True,
        extra_body={"hmas_replay": {"output_tokens": 900}},
    )
    async for _ in stream:
        break
    assert running() == 1
    await stream.close()
    async with asyncio.timeout(3):
        while running():
            await asyncio.sleep(0.02)

"""The emulated engine over real HTTP on an ephemeral port."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from hmas.contracts.step_cost import StepCostModel
from hmas.engine import server as engine_server
from hmas.engine.core.output_length import OutputLength
from hmas.engine.core.profile import EngineLimits, EngineProfile
from hmas.engine.server import MAX_BODY_BYTES, EngineServer
from tests.conftest import PATIENCE_S

FAST = EngineProfile(
    "fast",
    StepCostModel(c0_s=0.002, c_p_s=0.0, c_d_s=0.0, c_k_s=0.0),
    EngineLimits(max_num_seqs=4, max_num_batched_tokens=512, num_gpu_blocks=256, max_model_len=2048),
)
CHAT = "/v1/chat/completions"


class Running:
    """A server and a client of it."""

    def __init__(self, app: EngineServer, server: uvicorn.Server, client: httpx.AsyncClient) -> None:
        self.app, self.server, self.client = app, server, client

    async def metrics(self) -> dict[str, float]:
        text = (await self.client.get("/metrics")).text
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        return {s.name + s.labels.get("finished_reason", ""): s.value for s in samples if "le" not in s.labels}

    async def until(self, name: str, value: float) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await self.metrics())[name] != value:
                pass


@pytest.fixture
async def start() -> AsyncIterator[Any]:
    stack: list[Running] = []

    async def starter(profile: EngineProfile = FAST, grace_s: int | None = None) -> Running:
        app = EngineServer(profile, "m", OutputLength(median=5, sigma=0.5))
        config = uvicorn.Config(
            app, port=0, http="httptools", ws="none", log_level="critical", timeout_graceful_shutdown=grace_s
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        port = server.servers[0].sockets[0].getsockname()[1]
        stack.append(Running(app, server, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)))
        return stack[-1]

    yield starter
    for run in stack:
        await run.client.aclose()
        await run.server.shutdown()


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "abc " * 10}], **fields}


async def events(response: httpx.Response) -> list[Any]:
    lines = [line async for line in response.aiter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


async def test_chat_stream_is_vllms(start: Any) -> None:
    run = await start()
    body = chat_body(stream=True, max_tokens=6, ignore_eos=True, stream_options={"include_usage": True})
    async with run.client.stream("POST", CHAT, json=body, headers={"x-request-id": "abc"}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        chunks = await events(response)
    assert {c["id"] for c in chunks} == {"chatcmpl-abc"}
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    deltas = [c["choices"][0] for c in chunks[1:-1]]
    assert len(deltas) == 6
    assert all(d["delta"]["content"] for d in deltas)
    assert [d["finish_reason"] for d in deltas] == [None] * 5 + ["length"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 14, "completion_tokens": 6, "total_tokens": 20, "prompt_tokens_details": {"cached_tokens": 0},
    }  # fmt: skip


async def test_the_next_prompt_finds_prompt_and_answer_in_the_cache(start: Any) -> None:
    """As vLLM reports with --enable-prompt-tokens-details."""
    run = await start()
    messages = [{"role": "user", "content": "abc " * 200}]
    body = chat_body(messages=messages, max_tokens=160, ignore_eos=True)
    first = (await run.client.post(CHAT, json=body)).json()
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    messages.append({"role": "assistant", "content": first["choices"][0]["message"]["content"]})
    messages.append({"role": "user", "content": "xyz " * 50})
    second = (await run.client.post(CHAT, json=body)).json()
    cached, both = second["usage"]["prompt_tokens_details"]["cached_tokens"], first["usage"]["total_tokens"]
    assert both - 2 * run.app.core.kv.block_size <= cached <= both
    assert cached > first["usage"]["prompt_tokens"]


async def test_completion_stream_with_continuous_usage(start: Any) -> None:
    run = await start()
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": [1, 2, 3], "stream": True, "max_tokens": 3, "ignore_eos": True, "stream_options": options}
    async with run.client.stream("POST", "/v1/completions", json=body) as response:
        chunks = await events(response)
    assert [c["usage"]["completion_tokens"] for c in chunks] == [1, 2, 3, 3]
    assert chunks[0]["object"] == "text_completion"
    assert chunks[0]["choices"][0]["text"].strip()


async def test_whole_answer_and_drawn_length_repeats(start: Any) -> None:
    run = await start()
    answers = [(await run.client.post(CHAT, json=chat_body(tools=[], response_format={}))).json() for _ in range(2)]
    assert answers[0]["choices"][0]["message"]["content"] == answers[1]["choices"][0]["message"]["content"]
    assert answers[0]["choices"][0]["finish_reason"] == "stop"
    count = answers[0]["usage"]["completion_tokens"]
    assert len(answers[0]["choices"][0]["message"]["content"].split()) == count
    longer = await run.client.post(CHAT, json=chat_body(min_tokens=count + 7))
    assert longer.json()["usage"]["completion_tokens"] == count + 7
    shorter = await run.client.post(CHAT, json=chat_body(max_completion_tokens=1))
    assert shorter.json()["choices"][0]["finish_reason"] == "length"


async def test_a_client_that_leaves_frees_the_engine(start: Any) -> None:
    run = await start()
    body = chat_body(stream=True, max_tokens=1500, ignore_eos=True)
    async with run.client.stream("POST", CHAT, json=body) as response:
        await anext(response.aiter_lines())
        assert (await run.metrics())["vllm:num_requests_running"] == 1
    await run.until("vllm:num_requests_running", 0)
    assert run.app.core.kv.free == run.app.core.kv.num_blocks
    assert (await run.metrics())["vllm:request_success_totalabort"] == 1
    waiting = asyncio.create_task(run.client.post(CHAT, json=chat_body(max_tokens=1500, ignore_eos=True)))
    await run.until("vllm:num_requests_running", 1)
    waiting.cancel()  # a request without stream, likewise
    await run.until("vllm:num_requests_running", 0)


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        (CHAT, b"{", 400, None),
        (CHAT, b"[]", 400, None),
        (CHAT, chat_body(model="other"), 404, "model"),
        (CHAT, {"messages": []}, 400, "messages"),
        (CHAT, {"messages": "text"}, 400, "messages"),
        (CHAT, chat_body(n=2), 400, "n"),
        (CHAT, chat_body(max_tokens=0), 400, "max_tokens"),
        (CHAT, chat_body(max_tokens="9"), 400, "max_tokens"),
        (CHAT, chat_body(max_tokens=2048), 400, "max_tokens"),
        (CHAT, chat_body(priority=1), 400, None),
        (CHAT, chat_body(stream_options={"include_usage": True}), 400, "stream_options"),
        ("/v1/completions", {"prompt": ""}, 400, "prompt"),
        ("/v1/completions", {"prompt": ["a", "b"]}, 400, "prompt"),
        ("/v1/completions", {"prompt": "abc " * 2048}, 400, "input_tokens"),
        ("/tokenize", {"model": "m"}, 400, "prompt"),
    ],
)
async def test_bad_input_gets_vllms_error(start: Any, path: str, body: Any, status: int, param: str | None) -> None:
    run = await start()
    content = body if isinstance(body, bytes) else json.dumps(body)
    response = await run.client.post(path, content=content)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, status, param)
    assert set(error) == {"message", "type", "param", "code"}
    assert run.app.core.stats().num_requests_waiting == 0


async def test_oversized_body_is_refused(start: Any) -> None:
    run = await start()
    response = await run.client.post(CHAT, content=b" " * (MAX_BODY_BYTES + 1))
    assert response.status_code == 413


async def test_full_queue_is_503(start: Any) -> None:
    run = await start(FAST.with_limits(max_num_seqs=1, max_num_queued_reqs=0))
    response = await run.client.post(CHAT, json=chat_body())
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "ServiceUnavailableError"
    assert (await run.metrics())["vllm:admission_rejections_total"] == 1


async def test_priority_policy_takes_priority(start: Any) -> None:
    run = await start(FAST.with_limits(scheduling_policy="priority"))
    assert (await run.client.post(CHAT, json=chat_body(priority=-5))).status_code == 200


async def test_models_tokenize_version_health_and_no_admin(start: Any) -> None:
    run = await start()
    card = (await run.client.get("/v1/models")).json()["data"][0]
    assert (card["id"], card["max_model_len"], card["owned_by"]) == ("m", 2048, "vllm")
    assert (await run.client.post("/tokenize", json={"prompt": "abc abc abc"})).json()["count"] == 3
    assert (await run.client.get("/version")).json()["engine"] == "emulated"
    assert (await run.client.get("/health")).status_code == 200
    assert (await run.client.post("/pause")).status_code == 404
    assert (await run.client.get(CHAT)).status_code == 405


async def test_metrics_lag_and_records(start: Any) -> None:
    tight = replace(FAST, limits=EngineLimits(4, 512, 16, 8, 128))
    run = await start(tight)
    bodies = [chat_body(max_tokens=100, ignore_eos=True) for _ in range(2)]  # two of 114 tokens, memory for 128
    await asyncio.gather(*(run.client.post(CHAT, json=body) for body in bodies))
    metrics = await run.metrics()
    assert metrics["vllm:prompt_tokens_total"] == 28
    assert metrics["vllm:generation_tokens_total"] == 200
    assert metrics["vllm:num_preemptions_total"] >= 1
    assert metrics["vllm:request_success_totallength"] == 2
    assert metrics["vllm:cache_config_info"] == 1
    assert metrics["vllm:time_to_first_token_seconds_count"] == 2
    assert metrics["vllm:inter_token_latency_seconds_count"] == 198
    assert metrics["vllm:e2e_request_latency_seconds_count"] == 2
    assert metrics["vllm:request_queue_time_seconds_count"] == 2
    assert metrics["vllm:kv_cache_usage_perc"] == 0
    lag = (await run.client.get("/hmas/lag")).json()
    assert lag["count"] == metrics["hmas_engine_step_lag_seconds_count"]
    assert 0 <= lag["p50_s"] <= lag["p99_s"] <= lag["max_s"]
    assert (await run.client.delete("/hmas/lag")).status_code == 204
    assert (await run.client.get("/hmas/lag")).json() == {"count": 0, "p50_s": None, "p99_s": None, "max_s": 0.0}
    records = (await run.client.get("/hmas/requests")).json()["requests"]
    assert [r["output_tokens"] for r in records] == [100, 100]
    assert sum(r["preemptions"] for r in records) == metrics["vllm:num_preemptions_total"]
    assert all(0 <= r["queue_s"] <= r["ttft_s"] < r["e2e_s"] for r in records)


async def test_a_requests_overhead_delays_it(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, over = asyncio.Queue[float](), asyncio.Event()

    async def sleep(seconds: float) -> None:
        asked.put_nowait(seconds)
        await over.wait()

    monkeypatch.setattr(engine_server, "sleep", sleep)
    run = await start(replace(FAST, request_overhead_s=0.05))
    answer = asyncio.create_task(run.client.post(CHAT, json=chat_body(max_tokens=3, ignore_eos=True)))
    assert await asyncio.wait_for(asked.get(), PATIENCE_S) == 0.05
    before_s = time.monotonic()
    metrics = await run.metrics()
    assert (metrics["vllm:num_requests_running"], metrics["vllm:num_requests_waiting"]) == (0, 0)
    overhead_s = time.monotonic() - before_s
    over.set()
    assert (await answer).status_code == 200
    (record,) = (await run.client.get("/hmas/requests")).json()["requests"]
    assert overhead_s < record["queue_s"] < record["ttft_s"]


async def test_shutdown_ends_streams_with_an_error_event(start: Any) -> None:
    run = await start(grace_s=0)
    body = chat_body(stream=True, max_tokens=1500, ignore_eos=True)
    async with run.client.stream("POST", CHAT, json=body) as response:
        lines = response.aiter_lines()
        await anext(lines)
        stopping = asyncio.create_task(run.server.shutdown())
        rest = [line async for line in lines if line]
    await stopping
    assert json.loads(rest[-2][6:])["error"]["code"] == 503
    assert rest[-1] == "data: [DONE]"

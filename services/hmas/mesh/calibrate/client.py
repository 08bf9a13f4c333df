"""The endpoint under measurement: streams of stamped tokens, its model card and metrics."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson

from hmas.mesh.calibrate.measurement import EngineGauges, StreamTimes
from hmas.worker.adapters import scrape
from hmas_loadgen.words import WORDS

CONNECT_TIMEOUT_S = 5.0
SCRAPE_PERIOD_S = 0.05
MAX_ANSWER_TOKENS = 100_000


class EndpointFailed(Exception):
    """The endpoint does not answer, or not as an OpenAI server would; the reason and what to do."""


class Endpoint:
    """One OpenAI server. All methods raise EndpointFailed. Times are of `clock`, seconds."""

    def __init__(
        self, url: str, api_key: str, model: str, timeout_s: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, connect=CONNECT_TIMEOUT_S)
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self.model = model

    async def __aenter__(self) -> "Endpoint":
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, timeout=self._timeout)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def card(self) -> dict[str, Any]:
        """The model's card; the first model where none was named."""
        page = await self._get("/v1/models")
        try:
            cards = [card for card in orjson.loads(page)["data"] if self.model in ("", card["id"])]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise EndpointFailed(f"{self._url}/v1/models is no OpenAI model list: check the URL") from error
        if not cards:
            raise EndpointFailed(f"{self._url} does not serve {self.model!r}: give one of its models with --model")
        self.model = str(cards[0]["id"])
        return dict(cards[0])

    async def metrics(self) -> bytes:
        """The Prometheus page; empty where there is none."""
        try:
            return await self._get("/metrics")
        except EndpointFailed:
            return b""

    async def stream(self, words: int, output_tokens: int, seed: str) -> StreamTimes:
        """A completion of exactly `output_tokens`, from a prompt that no prefix cache has seen."""
        draw = random.Random(seed)
        prompt = " ".join(draw.choice(WORDS) for _ in range(max(1, words)))
        body = {
            "model": self.model, "prompt": prompt, "max_tokens": output_tokens, "min_tokens": output_tokens,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        assert self._session is not None
        sent_s = self._clock()
        try:
            async with self._session.post(f"{self._url}/v1/completions", json=body) as answer:
                if answer.status != 200:
                    text = (await answer.text())[:300]
                    raise EndpointFailed(f"{self._url}/v1/completions answered HTTP {answer.status}: {text}")
                return await self._read(answer, sent_s)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EndpointFailed(f"{self._url} broke off a completion: {error or type(error).__name__}") from error

    async def _read(self, answer: aiohttp.ClientResponse, sent_s: float) -> StreamTimes:
        stamps: list[float] = []
        usage: dict[str, Any] = {}
        async for line in answer.content:
            if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                continue
            now_s = self._clock()
            event = orjson.loads(line[5:])
            if event.get("error"):
                raise EndpointFailed(f"{self._url} ended a stream with an error: {event['error']}")
            usage = event.get("usage") or usage
            if event.get("choices") and len(stamps) < MAX_ANSWER_TOKENS:
                stamps.append(now_s)
        if not stamps or "prompt_tokens" not in usage:
            raise EndpointFailed(f"{self._url} does not report usage in streams: calibration needs its token counts")
        return StreamTimes(sent_s, tuple(stamps), int(usage["prompt_tokens"]), int(usage["completion_tokens"]))

    async def watch(self, stop: asyncio.Event) -> EngineGauges:
        """The most that the metrics show until `stop`."""
        most = EngineGauges()
        while not stop.is_set():
            page = await self.metrics()
            dialect = scrape.dialect_of(page)
            reading = scrape.read(page, dialect) if dialect else None
            if reading is None:
                return most
            most = EngineGauges(
                max(most.kv_usage, reading.kv_usage),
                max(most.running, reading.running),
                max(most.waiting, reading.waiting),
            )
            await asyncio.sleep(SCRAPE_PERIOD_S)
        return most

    async def _get(self, path: str) -> bytes:
        assert self._session is not None
        try:
            async with self._session.get(self._url + path) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = error or "no answer in time"
            raise EndpointFailed(f"{self._url} does not answer: {reason}; is the server up?") from error
        if answer.status != 200:
            raise EndpointFailed(f"{self._url}{path} answered HTTP {answer.status}")
        return body

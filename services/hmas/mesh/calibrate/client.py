"""HTTP client of the endpoint to calibrate: token streams with arrival times, its model card and its metrics."""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from hmas.mesh.calibrate.measurement import EngineGauges, StreamTimes
from hmas.worker.adapters import scrape
from hmas_loadgen.runner.http import ConnectionFailed, HttpClient, Origin
from hmas_loadgen.words import WORDS

SCRAPE_PERIOD_S = 0.05


class EndpointFailed(Exception):
    """The endpoint does not answer, or not as an OpenAI server would; the message says why and what to do."""


@dataclass(slots=True)
class StampedAnswer:
    """A `BodySink` that keeps the HTTP status and each piece of the body with its arrival time (monotonic, s)."""

    status: int = 0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)

    def head(self, status: int) -> None:
        self.status = status

    def body(self, at_s: float, chunk: bytes) -> None:
        self.pieces.append((at_s, chunk))

    def whole(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    def events(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yields each server-sent event with the time at which its line was complete. Raises JSONDecodeError."""
        rest = b""
        for at_s, piece in self.pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                    yield at_s, orjson.loads(line[5:])


class Endpoint:
    """An OpenAI server under measurement. Times are of the monotonic clock, in seconds.

    The constructor (for a faulty URL), `card` and `stream` raise EndpointFailed. `model` "" means the first model that
    the server lists.
    """

    def __init__(self, url: str, api_key: str, model: str, timeout_s: float) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s
        self._client = HttpClient()
        self.model = model
        try:
            self._origin = Origin.of(self._url)
        except ValueError as error:
            raise EndpointFailed(str(error)) from error

    async def __aenter__(self) -> "Endpoint":
        return self

    async def __aexit__(self, *error: object) -> None:
        self._client.close()

    async def card(self) -> dict[str, Any]:
        """Returns the model's entry in the server's model list, and sets `model` to its id. Raises EndpointFailed."""
        page = await self._get("/v1/models")
        try:
            cards = [card for card in orjson.loads(page)["data"] if self.model in ("", card["id"])]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise EndpointFailed(
                f"{self._url}/v1/models does not answer with an OpenAI model list: check the URL"
            ) from error
        if not cards:
            raise EndpointFailed(f"{self._url} does not serve the model {self.model!r}: name another with --model")
        self.model = str(cards[0]["id"])
        return dict(cards[0])

    async def metrics(self) -> bytes:
        """Returns the server's Prometheus page; b"" if it has none."""
        try:
            return await self._get("/metrics")
        except EndpointFailed:
            return b""

    async def stream(self, words: int, output_tokens: int, seed: str) -> StreamTimes:
        """Streams a completion of exactly `output_tokens` and returns its times. Raises EndpointFailed.

        The prompt has `words` words drawn by `seed`, so that no prefix cache holds it.
        """
        draw = random.Random(seed)
        prompt = " ".join(draw.choice(WORDS) for _ in range(max(1, words)))
        body = {
            "model": self.model, "prompt": prompt, "max_tokens": output_tokens, "min_tokens": output_tokens,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        headers, answer = self._headers | {"Content-Type": "application/json"}, StampedAnswer()
        sent_s = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._client.post(self._origin, "/v1/completions", headers, orjson.dumps(body), answer)
        except (ConnectionFailed, TimeoutError) as error:
            reason = error if isinstance(error, ConnectionFailed) else f"no end within {self._timeout_s:g} s"
            raise EndpointFailed(
                f"{self._url} did not complete a request ({reason}): check its log or raise --request-timeout"
            ) from error
        if answer.status != 200:
            text = answer.whole()[:300].decode("utf-8", "replace")
            raise EndpointFailed(f"{self._url}/v1/completions refused a request with HTTP {answer.status}: {text}")
        return self._times(answer, sent_s)

    def _times(self, answer: StampedAnswer, sent_s: float) -> StreamTimes:
        stamps: list[float] = []
        usage: dict[str, Any] = {}
        try:
            for at_s, event in answer.events():
                if event.get("error"):
                    raise EndpointFailed(f"{self._url} ended a stream with an error, check its log: {event['error']}")
                usage = event.get("usage") or usage
                if event.get("choices"):
                    stamps.append(at_s)
        except (orjson.JSONDecodeError, AttributeError) as error:
            raise EndpointFailed(f"{self._url} does not stream OpenAI completions, check the URL: {error}") from error
        if not stamps or "prompt_tokens" not in usage:
            raise EndpointFailed(f"{self._url} reports no token counts (usage) in streams: use a server that does")
        return StreamTimes(sent_s, tuple(stamps), int(usage["prompt_tokens"]), int(usage["completion_tokens"]))

    async def watch(self, stop: asyncio.Event) -> EngineGauges:
        """Polls the server's metrics until `stop` is set and returns the highest values seen; zeros without metrics."""
        most = EngineGauges()
        while not stop.is_set():
            metrics = scrape.read_page(await self.metrics())
            dialect = scrape.dialect_of(metrics)
            reading = scrape.read(metrics, dialect) if dialect else None
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
        answer = StampedAnswer()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._client.get(self._origin, path, self._headers, answer)
        except (ConnectionFailed, TimeoutError) as error:
            reason = error if isinstance(error, ConnectionFailed) else f"no answer within {self._timeout_s:g} s"
            raise EndpointFailed(
                f"{self._url} does not answer ({reason}): start the server, or correct the URL"
            ) from error
        if answer.status != 200:
            raise EndpointFailed(f"{self._url}{path} answered HTTP {answer.status}: check URL and --api-key-file")
        return answer.whole()

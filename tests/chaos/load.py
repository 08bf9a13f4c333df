"""Steady load whose every request is accounted for: finished, a clear error, or lost."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import openai

REQUEST_TIMEOUT_S = 45.0


@dataclass
class Answered:
    """A request that was answered. Instants are on the monotonic clock, in s, `first_s` that of a stream's first text;
    `mode` is its header `x-hmas-mode`, `name` its `x-request-id`, `slo` the place of its SLO in the load's."""

    sent_s: float
    headed_s: float
    ended_s: float
    mode: str
    name: str = ""
    first_s: float = 0.0
    slo: int = 0


@dataclass
class Load:
    """Sends `rate` requests per second, streamed and not, until the block ends; then waits for all of them.

    `ends` counts `finished`, `error:<status or code>`, `connection` (refused or closed) and `lost`: a request that
    hung, or a stream that ended without an end. `served` counts the finished ones by (prompt tokens, output tokens),
    which hardly any two of a load have in common. Of three requests `streams` are streamed, which costs this process
    more than anything else. With `others`, URLs of further gateways, requests go to all in turn, as behind a balancer:
    what a gateway does not take, because it drains or does not listen, goes to the next. So does what finds its
    connection closed before an answer begins; `resets` counts these, and `cut` the streams that broke off. With `slos`,
    (TTFT, TPOT) in ms, requests state them in turn.
    """

    url: str
    rate: float = 8.0
    output_tokens: int = 40
    streams: int = 2
    others: tuple[str, ...] = ()
    resets: int = 0
    cut: int = 0
    max_tokens: int = 512
    key: str = "unused"
    model: str = "emulated"
    slos: tuple[tuple[int, int], ...] = ()
    ends: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    served: Counter[tuple[int, int]] = field(default_factory=Counter)

    async def __aenter__(self) -> Self:
        self._clients = [
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=self.key, max_retries=0, timeout=REQUEST_TIMEOUT_S)
            for url in (self.url, *self.others)
        ]
        self._requests: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Event()
        self._sending.set()
        self._sender = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sender.cancel()
        await asyncio.gather(self._sender, *self._requests, return_exceptions=True)
        for client in self._clients:
            await client.close()

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Sends nothing while the block runs, which begins once all that was sent has ended."""
        self._sending.clear()
        try:
            while self._requests:
                await asyncio.wait(self._requests)
            yield
        finally:
            self._sending.set()

    @property
    def running(self) -> int:
        """The requests sent whose end is to come."""
        return len(self._requests)

    @property
    def lost(self) -> int:
        return self.ends["lost"]

    @property
    def last_finished_s(self) -> float:
        return max((each.ended_s for each in self.answered), default=0.0)

    async def _send_all(self) -> None:
        next_s, i = time.monotonic(), 0
        while True:
            if not self._sending.is_set():
                await self._sending.wait()
                next_s = time.monotonic()
            task = asyncio.create_task(self._one(i))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
            i += 1
            next_s += 1 / self.rate
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def _one(self, i: int) -> None:
        try:
            end = await asyncio.wait_for(self._try(i), REQUEST_TIMEOUT_S + 5)
        except openai.APITimeoutError:
            end = "lost"
        except openai.APIStatusError as error:
            body = error.response.json()
            end = f"error:{error.status_code}" if body.get("error", {}).get("message") else "lost"
        except openai.APIConnectionError as error:
            end = "connection"
            self.details.append(repr(error.__cause__))
        except openai.APIError as error:  # an error object inside a stream
            end = f"error:{error.code or error.type or 'stream'}" if error.message else "lost"
        except Exception as error:  # e.g. the transport's own error when a stream is cut
            self.cut += 1
            end = "connection" if "peer closed" in str(error) or "incomplete" in str(error) else "lost"
            self.details.append(repr(error))
        self.ends[end] += 1

    async def _try(self, i: int) -> str:
        *first, last = (self._clients[(i + n) % len(self._clients)] for n in range(len(self._clients)))
        for client in first:
            try:
                return await self._ask(client, i)
            except openai.APITimeoutError:
                raise
            except openai.APIConnectionError as error:
                self.resets += type(error.__cause__).__name__ != "ConnectError"  # of the client's own HTTP library
            except openai.APIStatusError as error:
                if error.response.headers.get("x-hmas-reason") != "draining":
                    raise
        return await self._ask(last, i)

    async def _ask(self, client: openai.AsyncOpenAI, i: int) -> str:
        messages: list[openai.types.chat.ChatCompletionMessageParam] = [
            {"role": "user", "content": f"Question {i}: " + "why " * (20 + i % 200)}
        ]
        extra = {"hmas_replay": {"output_tokens": self.output_tokens + i // 200}}
        create = client.chat.completions.with_raw_response.create
        slo = i % max(1, len(self.slos))
        headers = (
            dict(zip(("x-slo-ttft-ms", "x-slo-tpot-ms"), map(str, self.slos[slo]), strict=True)) if self.slos else {}
        )
        sent_s, first_s = time.monotonic(), 0.0
        if i % 3 >= self.streams:  # three, so that each of two workers gets both kinds
            raw = await create(model=self.model, messages=messages, max_tokens=self.max_tokens, extra_body=extra,
                               extra_headers=headers)  # fmt: skip
            headed_s, told = time.monotonic(), raw.headers
            answer = raw.parse()
            usage, reason = answer.usage, answer.choices[0].finish_reason
        else:
            opened = await create(
                model=self.model, messages=messages, max_tokens=self.max_tokens, stream=True, extra_body=extra,
                stream_options={"include_usage": True}, extra_headers=headers,
            )  # fmt: skip
            headed_s, told = time.monotonic(), opened.headers
            usage = reason = None
            async for chunk in opened.parse():
                usage = chunk.usage or usage
                if not first_s and chunk.choices and chunk.choices[0].delta.content:
                    first_s = time.monotonic()
                if chunk.choices:
                    reason = chunk.choices[0].finish_reason or reason
        if not reason or usage is None:
            return "lost"
        self.served[usage.prompt_tokens, usage.completion_tokens] += 1
        mode, name = told.get("x-hmas-mode", ""), told.get("x-request-id", "")
        self.answered.append(Answered(sent_s, headed_s, time.monotonic(), mode, name, first_s, slo))
        return "finished"

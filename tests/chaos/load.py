"""Steady load whose every request is accounted for: finished, a clear error, or lost."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import openai

REQUEST_TIMEOUT_S = 45.0


@dataclass
class Answered:
    """A request that was answered. Instants are on the monotonic clock, in s; `mode` is its header `x-hmas-mode`."""

    sent_s: float
    headed_s: float
    ended_s: float
    mode: str


@dataclass
class Load:
    """Sends `rate` requests per second, streamed and not, until the block ends; then waits for all of them.

    `ends` counts `finished`, `error:<status or code>`, `connection` (refused or closed) and `lost`: a request that
    hung, or a stream that ended without an end. `served` counts the finished ones by (prompt tokens, output tokens),
    which hardly any two of a load have in common. Of three requests `streams` are streamed, which costs this process
    more than anything else.
    """

    url: str
    rate: float = 8.0
    output_tokens: int = 40
    streams: int = 2
    ends: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    served: Counter[tuple[int, int]] = field(default_factory=Counter)

    async def __aenter__(self) -> Self:
        self._client = openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="unused", max_retries=0, timeout=REQUEST_TIMEOUT_S
        )
        self._requests: set[asyncio.Task[None]] = set()
        self._sender = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sender.cancel()
        await asyncio.gather(self._sender, *self._requests, return_exceptions=True)
        await self._client.close()

    @property
    def lost(self) -> int:
        return self.ends["lost"]

    @property
    def last_finished_s(self) -> float:
        return max((each.ended_s for each in self.answered), default=0.0)

    async def _send_all(self) -> None:
        started_s, i = time.monotonic(), 0
        while True:
            task = asyncio.create_task(self._one(i))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
            i += 1
            await asyncio.sleep(max(0.0, started_s + i / self.rate - time.monotonic()))

    async def _one(self, i: int) -> None:
        try:
            end = await asyncio.wait_for(self._ask(i), REQUEST_TIMEOUT_S + 5)
        except openai.APITimeoutError:
            end = "lost"
        except openai.APIStatusError as error:
            body = error.response.json()
            end = f"error:{error.status_code}" if body.get("error", {}).get("message") else "lost"
        except openai.APIConnectionError:
            end = "connection"
        except openai.APIError as error:  # an error object inside a stream
            end = f"error:{error.code or error.type or 'stream'}" if error.message else "lost"
        except Exception as error:  # e.g. the transport's own error when a stream is cut
            end = "connection" if "peer closed" in str(error) or "incomplete" in str(error) else "lost"
            self.details.append(repr(error))
        self.ends[end] += 1

    async def _ask(self, i: int) -> str:
        messages: list[openai.types.chat.ChatCompletionMessageParam] = [
            {"role": "user", "content": f"Question {i}: " + "why " * (20 + i % 200)}
        ]
        extra = {"hmas_replay": {"output_tokens": self.output_tokens + i // 200}}
        create = self._client.chat.completions.with_raw_response.create
        sent_s = time.monotonic()
        if i % 3 >= self.streams:  # three, so that each of two workers gets both kinds
            raw = await create(model="emulated", messages=messages, max_tokens=512, extra_body=extra)
            headed_s = time.monotonic()
            answer = raw.parse()
            mode, usage, reason = raw.headers.get("x-hmas-mode", ""), answer.usage, answer.choices[0].finish_reason
        else:
            opened = await create(
                model="emulated", messages=messages, max_tokens=512, stream=True, extra_body=extra,
                stream_options={"include_usage": True},
            )  # fmt: skip
            headed_s = time.monotonic()
            mode, usage, reason = opened.headers.get("x-hmas-mode", ""), None, None
            async for chunk in opened.parse():
                usage = chunk.usage or usage
                if chunk.choices:
                    reason = chunk.choices[0].finish_reason or reason
        if not reason or usage is None:
            return "lost"
        self.served[usage.prompt_tokens, usage.completion_tokens] += 1
        self.answered.append(Answered(sent_s, headed_s, time.monotonic(), mode))
        return "finished"

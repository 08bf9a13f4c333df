"""Sends the questions of the LLM selector over the network. It needs the package's extra `meta`."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import openai
from openai.types.chat import ChatCompletion

from hmas.contracts.control_agents import AskSelector, SelectorAnswered
from hmas.meta.agent.selectors.llm import RESPONSE_SCHEMA, build_messages

MAX_ANSWER_TOKENS = 800
TOKEN_CHARS = 4  # of text; only where an endpoint does not tell how many tokens it took


SPENT = "the language model was not asked: its tokens of this minute are spent"


class TokenBudget:
    """The tokens that questions to the mesh's own model may take: `per_minute` at most are saved up. A question may be
    put while any is left, and is charged for what it took. Times are in s."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._seen_s: float | None = None

    def allows(self, now_s: float) -> bool:
        if self._seen_s is not None:
            self._left = min(self._per_minute, self._left + (now_s - self._seen_s) * self._per_minute / 60.0)
        self._seen_s = now_s
        return self._left > 0.0

    def charge(self, tokens: int) -> None:
        self._left -= tokens


class LlmClient:
    """Sends the meta agent's questions to an OpenAI-compatible endpoint. The answer, a time-out or an error is posted
    as a `SelectorAnswered`.

    With a `budget` the endpoint is the mesh's own API: it is asked for the pool's own model if `model` is empty, and
    the question gives way to every other request: it is of the tier `flex`, of the least importance, and need not be
    answered before its time-out. The key's tenant is the operator's to choose; without keys it is the default one."""

    def __init__(
        self, url: str, model: str, api_key: str, post: Callable[[object], None], budget: TokenBudget | None = None
    ) -> None:
        self._client = openai.AsyncOpenAI(base_url=url, api_key=api_key, max_retries=0)
        self._model = model
        self._post = post
        self._budget = budget
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, question: AskSelector) -> None:
        task = asyncio.create_task(self._ask(question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def _ask(self, question: AskSelector) -> None:
        answer, error = "", ""
        if self._budget is not None and not self._budget.allows(time.monotonic()):
            self._post(SelectorAnswered(question.ask, question.view.pool, "", SPENT))
            return
        try:
            async with asyncio.timeout(question.timeout_s):
                answer = await self._complete(question)
        except TimeoutError:
            error = f"no answer from the language model within {question.timeout_s:g} s"
        except openai.APIStatusError as refused:
            error = f"the language model's endpoint answered with HTTP {refused.status_code}"
        except openai.OpenAIError as failed:
            error = f"the language model's endpoint failed: {type(failed).__name__}: {failed}"
        except ValueError as malformed:  # the body is not a chat completion
            error = f"malformed reply of the language model's endpoint: {malformed}"
        self._post(SelectorAnswered(question.ask, question.view.pool, answer, error))

    async def _complete(self, question: AskSelector) -> str:
        messages: Any = build_messages(question.view, question.current, question.hints)
        schema: Any = {"type": "json_schema", "json_schema": RESPONSE_SCHEMA}
        own: dict[str, Any] = {} if self._budget is None else _last_of_all(question.timeout_s)
        if self._budget is not None:  # charged before: one that is not answered in time has been computed as well
            asked = len(json.dumps(messages)) // TOKEN_CHARS
            self._budget.charge(asked)
        reply: ChatCompletion = await self._client.chat.completions.create(
            model=self._model or question.view.pool,
            messages=messages,
            response_format=schema,
            temperature=0.0,
            max_tokens=MAX_ANSWER_TOKENS,
            timeout=question.timeout_s,
            **own,
        )
        content = reply.choices[0].message.content if reply.choices else None
        if self._budget is not None:
            told = reply.usage.total_tokens if reply.usage is not None else asked + len(content or "") // TOKEN_CHARS
            self._budget.charge(told - asked)
        if content is None:
            raise ValueError("its chat completion has no content")
        return content


def _last_of_all(timeout_s: float) -> dict[str, Any]:
    """Returns what makes the mesh serve a question after every other request."""
    headers = {"x-hmas-importance": "0.5", "x-slo-ttlt-ms": f"{1e3 * timeout_s:.0f}"}
    return {"service_tier": "flex", "extra_headers": headers}

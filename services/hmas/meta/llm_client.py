"""Sends the questions of the LLM selector over the network. It needs the package's extra `meta`."""

import asyncio
from collections.abc import Callable
from typing import Any

import openai
from openai.types.chat import ChatCompletion

from hmas.contracts.control_agents import AskSelector, SelectorAnswered
from hmas.meta.agent.selectors.llm import RESPONSE_SCHEMA, build_messages

MAX_ANSWER_TOKENS = 800


class LlmClient:
    """Sends the meta agent's questions to an OpenAI-compatible endpoint. The answer, a time-out or an error is posted
    as a `SelectorAnswered`."""

    def __init__(self, url: str, model: str, api_key: str, post: Callable[[object], None]) -> None:
        self._client = openai.AsyncOpenAI(base_url=url, api_key=api_key, max_retries=0)
        self._model = model
        self._post = post
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
        reply: ChatCompletion = await self._client.chat.completions.create(
            model=self._model,
            messages=messages,
            response_format=schema,
            temperature=0.0,
            max_tokens=MAX_ANSWER_TOKENS,
            timeout=question.timeout_s,
        )
        content = reply.choices[0].message.content if reply.choices else None
        if content is None:
            raise ValueError("its chat completion has no content")
        return content

"""The `generative` backend: a causal LM writes `{task_type, slo_ttft_ms, slo_tpot_ms, output_tokens}` (H-MAS §3.2).

The model is called through any OpenAI endpoint with a JSON schema, or through transformers in this process. Its answer
is validated; an invalid answer counts as None, and the request stays *unknown*. This module is part of the shell: it
uses the network or loads a model.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hmas.contracts.request import TaskType
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.perception.agent.features import window

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TASKS = tuple(str(task) for task in TaskType if task is not TaskType.UNKNOWN)
HEAD_CHARS, TAIL_CHARS = 1500, 500
MOST_OUTPUT_TOKENS = 65_536
MOST_SLO_MS = 600_000
MOST_ANSWER_CHARS = 2_000
CONFIDENCE = 0.9  # given to every valid answer, because the model states none
SPREAD = 2.0  # assumed ratio of the 90 % quantile to the stated length, until the fence has learned the real errors
COMPACT = (",", ":")  # separators of the answer's JSON; every grammar allows them
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "task_type": {"type": "string", "enum": list(TASKS)},
        "slo_ttft_ms": {"type": "integer", "minimum": 1, "maximum": MOST_SLO_MS},
        "slo_tpot_ms": {"type": "integer", "minimum": 1, "maximum": MOST_SLO_MS},
        "output_tokens": {"type": "integer", "minimum": 1, "maximum": MOST_OUTPUT_TOKENS},
    },
    "required": ["task_type", "slo_ttft_ms", "slo_tpot_ms", "output_tokens"],
    "additionalProperties": False,
}


def longest_answer() -> str:
    """Returns the longest JSON that SCHEMA allows, with one blank after each separator: an engine may write them even
    where it allows no others. Raises KeyError if a field is unbounded."""
    fields: dict[str, Any] = {}
    for name, field in SCHEMA["properties"].items():
        fields[name] = max(field["enum"], key=len) if field["type"] == "string" else field["maximum"]
    return json.dumps(fields)


# Whatever the model's tokenizer: a token holds at least a byte. The last one ends the answer.
MOST_ANSWER_TOKENS = len(longest_answer().encode()) + 1
_INSTRUCTION = (
    "Tag the request below for a scheduler. Answer with one JSON object with the keys task_type (one of "
    f"{', '.join(TASKS)}), slo_ttft_ms, slo_tpot_ms and output_tokens (the length of the answer it will get)."
)

Complete = Callable[[Sequence[str]], list[str | None]]


def tagging_prompt(text: str) -> str:
    """Returns the prompt by which the model is asked to tag a request; the request's text is cut to a fixed window."""
    return f"{_INSTRUCTION}\n\n### Request\n{window(text, HEAD_CHARS, TAIL_CHARS)}\n\n### Tags\n"


def prompt_ids(tokenizer: "PreTrainedTokenizerBase", prompt: str) -> list[int]:
    """Returns a tagging prompt as the tokens that a chat endpoint makes of it, so that a model is trained on what it is
    asked; without a chat template, those of the prompt alone."""
    if tokenizer.chat_template:
        turns = [{"role": "user", "content": prompt}]
        prompt = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    ids: list[int] = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    return ids


def parse(answer: str | None) -> Estimate | None:
    """Returns the estimate that an answer states; None if it is missing, malformed, incomplete or out of range."""
    if answer is None or len(answer) > MOST_ANSWER_CHARS:
        return None
    try:
        fields = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or set(fields) != set(SCHEMA["required"]) or fields["task_type"] not in TASKS:
        return None
    for name in ("slo_ttft_ms", "slo_tpot_ms", "output_tokens"):
        value, most = fields[name], SCHEMA["properties"][name]["maximum"]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            return None
    length = float(fields["output_tokens"])
    return Estimate(TaskType(fields["task_type"]), CONFIDENCE, length, length * SPREAD)


class GenerativeBackend:
    """A perception backend that asks a causal LM for a request's tags.

    `complete` returns the LM's answer to each tagging prompt, None where it has none; it must not raise because of a
    prompt's content.
    """

    def __init__(self, complete: Complete, version: str) -> None:
        self._complete = complete
        self.version = version

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        answers = self._complete([tagging_prompt(prompt.text) for prompt in prompts])
        return [parse(answer) for answer in answers]


class EndpointCompletion:
    """Completes prompts at an OpenAI endpoint, up to `workers` at a time.

    A request that fails or takes longer than `timeout_s` is not retried and yields None.
    """

    def __init__(self, base_url: str, model: str, api_key: str, timeout_s: float = 2.0, workers: int = 16) -> None:
        from openai import OpenAI

        self._client = OpenAI(base_url=base_url, api_key=api_key or "none", timeout=timeout_s, max_retries=0)
        self._model = model
        self._pool = ThreadPoolExecutor(workers, "generative")

    def __call__(self, prompts: Sequence[str]) -> list[str | None]:
        return list(self._pool.map(self._one, prompts))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _one(self, prompt: str) -> str | None:
        from openai import OpenAIError

        try:
            answer = self._client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": prompt}],
                max_tokens=MOST_ANSWER_TOKENS,
                temperature=0.0,
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "tags", "strict": True, "schema": SCHEMA},
                },
            )
        except OpenAIError:
            return None
        return answer.choices[0].message.content if answer.choices else None


class LocalCompletion:
    """Completes prompts by a causal LM in this process, through transformers (needs the extra `generative`).

    `base` is the model's name or folder, `adapter` a folder of LoRA weights, None for the plain model.
    """

    def __init__(self, base: str, adapter: Path | None = None) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(base, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
        if adapter is not None:
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, str(adapter))
        self._model: PreTrainedModel = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()

    def __call__(self, prompts: Sequence[str]) -> list[str | None]:
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        ids = [prompt_ids(self._tokenizer, prompt) for prompt in prompts]
        batch = self._tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self._model.device)
        out = self._model.generate(
            **batch, max_new_tokens=MOST_ANSWER_TOKENS, do_sample=False, pad_token_id=self._tokenizer.pad_token_id
        )
        written = out[:, batch["input_ids"].shape[1] :]
        texts: list[str] = self._tokenizer.batch_decode(written, skip_special_tokens=True)
        return [_first_object(text) for text in texts]


def _first_object(text: str) -> str | None:
    """Returns the text up to the first closing brace, because an untuned model goes on writing; None without a brace.

    The object that is asked for has no nested braces.
    """
    end = text.find("}")
    return text[: end + 1].strip() if end >= 0 else None

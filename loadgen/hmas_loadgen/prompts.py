"""Makes prompts of an exact token count by the mesh's estimate (`hmas.laws.tokens`), four bytes a token.

Without labelled prompts, a row with a task type gets a prompt of that type in our own words. If a trace row has hash
ids, each id becomes one block of three-letter words that depends only on the id and the seed, so two prompts share a
prefix exactly where they share ids. A row with neither gets such words, of which the first encode the request's number,
so that no prefix is shared by accident.
"""

import gzip
from collections.abc import Mapping
from pathlib import Path
from random import Random

import numpy as np
import orjson

from hmas.contracts.request import TaskType
from hmas.laws.tokens import BYTES_PER_TOKEN, MESSAGE_OVERHEAD
from hmas_loadgen.plan import Api
from hmas_loadgen.traces.row import TraceRow
from hmas_loadgen.typed import typed_prompts
from hmas_loadgen.words import WORDS

FILLER_WORDS = 1 << 16
MAX_CORPUS_PROMPTS = 20_000
_UNTIL_BLOCKS = 1 << 31  # request numbers lie below this, hash ids above, so their openings never collide

Corpus = Mapping[TaskType, tuple[str, ...]]


def load_corpus(folder: Path) -> Corpus:
    """Reads prompts by task type from the files `<TaskType>.jsonl.gz`, whose lines are JSON objects with a field
    `prompt`. Duplicates are dropped. Raises ValueError if the folder has no such file."""
    corpus: dict[TaskType, tuple[str, ...]] = {}
    for task in TaskType:
        path = folder / f"{task}.jsonl.gz"
        if not path.exists():
            continue
        with gzip.open(path, "rb") as file:
            texts = (orjson.loads(line)["prompt"] for line in file)
            corpus[task] = tuple(dict.fromkeys(text for text in texts if text))[:MAX_CORPUS_PROMPTS]
    if not corpus:
        raise ValueError(f"no file <TaskType>.jsonl.gz in {folder}; give --prompts a folder of labelled prompts")
    return corpus


def text_budget(api: Api, input_tokens: int) -> int:
    """Returns how many of `input_tokens` are left for the text, at least 1. A chat message spends some on its
    overhead."""
    return max(1, input_tokens - MESSAGE_OVERHEAD) if api is Api.CHAT else max(1, input_tokens)


class PromptBuilder:
    """Makes the prompt of each request from the seed, the request's index and its row alone. Making one costs about one
    copy of the text, so it can happen when the request is sent."""

    def __init__(self, seed: int, api: Api, block_tokens: int, corpus: Corpus | None = None) -> None:
        rng = np.random.default_rng([seed, 0x70726F6D])
        self._seed = seed
        self._api = api
        self._block_tokens = block_tokens
        self._corpus = corpus
        self._typed = typed_prompts()
        picks = rng.integers(0, len(WORDS), FILLER_WORDS)
        self._filler = " ".join(WORDS[i] for i in picks) + " "

    def text(self, index: int, row: TraceRow) -> str:
        """Returns the prompt of request `index`: the row's own text if the trace has one, otherwise blocks by hash id,
        a labelled prompt of the row's task type, one in our own words, or synthetic words, in `row.input_tokens`
        tokens."""
        if row.prompt is not None:
            return row.prompt
        tokens = text_budget(self._api, row.input_tokens)
        if row.hash_ids:
            return self._blocks(index, row.hash_ids, tokens)
        samples = self._corpus.get(row.task) if self._corpus and row.task else None
        if samples:
            return self._sampled(index, samples, tokens)
        if row.task in self._typed.frames:
            return self._typed.text(row.task, tokens, row.output_tokens, Random(f"{self._seed} {index}"))
        return self._words(index, tokens)[:-1]

    def _words(self, identity: int, tokens: int) -> str:
        """Returns exactly `tokens` words, each followed by a space. The first four encode `identity`."""
        opening = "".join(f"{WORDS[(identity >> shift) & 255]} " for shift in (0, 8, 16, 24))
        start = (identity * 2_654_435_761 + self._seed) % FILLER_WORDS * BYTES_PER_TOKEN
        need = tokens * BYTES_PER_TOKEN - len(opening)
        body = self._filler[start : start + need] if need > 0 else ""
        while len(body) < need:
            body += self._filler[: need - len(body)]
        return (opening + body)[: tokens * BYTES_PER_TOKEN]

    def _blocks(self, index: int, hash_ids: tuple[int, ...], tokens: int) -> str:
        parts: list[str] = []
        left = tokens
        for block in hash_ids:
            parts.append(self._words(_UNTIL_BLOCKS + block % _UNTIL_BLOCKS, min(self._block_tokens, left)))
            left -= self._block_tokens
            if left <= 0:
                break
        if left > 0:
            parts.append(self._words(index, left))
        return "".join(parts)[:-1]

    def _sampled(self, index: int, samples: tuple[str, ...], tokens: int) -> str:
        """Returns one of `samples`, cut or padded to `tokens`. Its first line is the request's number, so that a prompt
        drawn twice does not hit the engine's prefix cache."""
        pick = np.random.default_rng([self._seed, index]).integers(0, len(samples))
        size = tokens * BYTES_PER_TOKEN
        raw = f"[{index:06x}]\n{samples[pick]}".encode()
        if len(raw) > size:
            text = raw[:size].decode("utf-8", "ignore")
            return text + "." * (
                size - len(text.encode())
            )  # cutting inside a UTF-8 character leaves up to 3 bytes to fill
        context = b"\n\nContext: "
        if size - len(raw) > len(context):
            raw += context
        filler = self._words(index, -(-(size - len(raw)) // BYTES_PER_TOKEN) + 1)
        return raw.decode() + filler[: size - len(raw)]

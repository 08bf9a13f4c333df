"""Answers of one entry for each text: embeddings, and the scores of `rerank` and `score`. The numbers mean nothing, but
the same texts get the same ones."""

from base64 import b64encode
from hashlib import blake2b
from random import Random
from struct import pack
from typing import Any

import orjson

from hmas.engine.api import BadRequest, Generation
from hmas.engine.prompts import EMBEDDINGS_PATH, RERANK_PATH


class ListAnswer:
    """An answer that holds a list. It is never streamed, and the engine has it when the prefill ends."""

    finish_reason = b"stop"

    def __init__(self, generation: Generation, response_id: str, model: str, created_s: int) -> None:
        self.cached_tokens: int | None = None
        self._generation, self._id, self._model, self._created_s = generation, response_id, model, created_s

    def error_event(self, error: BadRequest) -> bytes:
        return error.json()

    def role_event(self) -> bytes:
        return b""

    def event(self, index: int) -> bytes:
        return b""

    def last_events(self, index: int) -> bytes:
        return self.whole()

    def whole(self) -> bytes:
        path, tokens = self._generation.path, self._generation.prompt_tokens
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        head: dict[str, Any] = {"id": self._id, "model": self._model, "usage": usage}
        if path == RERANK_PATH:
            scores = enumerate(self._scores())
            ranked = sorted(scores, key=lambda each: -each[1])
            return orjson.dumps({**head, "results": [{"index": i, "relevance_score": s} for i, s in ranked]})
        head |= {"object": "list", "created": self._created_s}
        if path == EMBEDDINGS_PATH:
            data: list[Any] = [{"index": i, "object": "embedding", "embedding": self._vector(i)} for i in self._parts]
        else:
            data = [{"index": i, "object": "score", "score": score} for i, score in enumerate(self._scores())]
        return orjson.dumps({**head, "data": data})

    @property
    def _parts(self) -> range:
        return range(self._generation.parts)

    def _scores(self) -> list[float]:
        return [self._random(part).random() for part in self._parts]

    def _vector(self, part: int) -> list[float] | str:
        random = self._random(part)
        vector = [random.gauss(0.0, 1.0) for _ in range(self._generation.dimensions)]
        if self._generation.base64:
            return b64encode(pack(f"<{len(vector)}f", *vector)).decode()
        return vector

    def _random(self, part: int) -> Random:
        return Random(blake2b(b"%d %b" % (part, self._generation.content_digest), digest_size=8).digest())

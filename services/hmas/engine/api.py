"""Reads request bodies as vLLM does: the result is a `Generation`, or a `BadRequest` in vLLM's error format."""

from dataclasses import dataclass
from hashlib import blake2b
from math import inf, isfinite
from typing import Any

import orjson

from hmas.contracts.registry import COMPLETIONS_PATH
from hmas.engine.asked_form import AnswerForm, BadForm, asked_form
from hmas.engine.core.chunking import TokenDeadline
from hmas.engine.core.output_length import OutputLength
from hmas.engine.core.profile import EngineLimits
from hmas.engine.prompts import BOUNDS, MESSAGES_PATH, PROMPTS, BadPrompt
from hmas.engine.words import words
from hmas.laws.tokens import BYTES_PER_TOKEN

# The integer fields and their smallest allowed values; priority may be any 64-bit integer.
_INTEGERS = {
    "max_tokens": 1, "max_completion_tokens": 1, "max_output_tokens": 1, "min_tokens": 0, "n": 1,
    "priority": -(2**63),
}  # fmt: skip


DIMENSIONS, MAX_DIMENSIONS = 16, 4096  # of an embedding


@dataclass(frozen=True, slots=True)
class BadRequest:
    """An error answer in vLLM's format `{"error": {"message", "type", "param", "code"}}`.

    `status` is the HTTP status and the `code`; `param` names the faulty request field, None if no single one is faulty.
    """

    status: int
    message: str
    param: str | None = None

    def json(self) -> bytes:
        kinds = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}
        kind = kinds.get(self.status, "InternalServerError")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.status}
        return orjson.dumps({"error": error})


@dataclass(frozen=True, slots=True)
class UrgencyTerms:
    """A request's deadlines as its `vllm_xargs` state them for the H-MAS scheduler plug-in.

    The fields are `hmas_urgency` (lower values are served first), `hmas_tpot_ms` (TPOT SLO), and `hmas_ttft_ms` (time
    left to the first token's deadline). A value that is not a finite number counts as absent.
    """

    urgency: float = inf
    tpot_s: float | None = None
    ttft_s: float | None = None

    def pace(self, now_s: float) -> TokenDeadline | None:
        """Returns the token deadlines of a request that arrived at `now_s`; None if it states no TPOT."""
        if self.tpot_s is None:
            return None
        return TokenDeadline(self.tpot_s, None if self.ttft_s is None else now_s + self.ttft_s)


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer that a valid request asks for.

    `path` is that of the API. `parts` is the number of texts that are compared or embedded, and `dimensions` that of an
    embedding's numbers; where nothing is generated, `output_tokens` is the one that ends the prefill. `stops` is true
    if the answer ends by itself (finish reason `stop`), false if at its limit (`length`). `continuous_usage` asks for
    token counts in every chunk.
    """

    path: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    prompt_tokens: int
    output_tokens: int
    stops: bool
    priority: int
    prefix_hashes: tuple[int, ...]
    terms: UrgencyTerms
    answer_hashes: tuple[int, ...] = ()
    caching: bool = False
    parts: int = 1
    dimensions: int = DIMENSIONS
    base64: bool = False
    content_digest: bytes = b""  # of the prompt, where nothing is generated
    transfer: object = None  # the body's `kv_transfer_params`
    form: AnswerForm | None = None  # None: words

    @property
    def generates(self) -> bool:
        return self.path in BOUNDS


@dataclass(frozen=True, slots=True)
class ApiReader:
    """Reads request bodies for one served model. Unknown fields are accepted and ignored, as in vLLM."""

    model: str
    limits: EngineLimits
    length: OutputLength

    def read(self, raw: bytes, path: str) -> Generation | BadRequest:
        body = self.object_of(raw)
        if isinstance(body, BadRequest):
            return body
        try:
            prompt, form = PROMPTS[path](body), asked_form(body, path)
        except (BadPrompt, BadForm) as bad:
            return BadRequest(400, str(bad), bad.param)
        error = self._field_error(body, path)
        if error is not None:
            return error
        tokens, content, bounds = prompt.tokens, prompt.content, BOUNDS.get(path)
        room = self.limits.max_model_len - tokens
        asked = 1 if bounds is None else next(filter(None, map(body.get, bounds)), None)
        if room < 1 or (asked or 0) > room:
            return self._too_long(tokens, asked)
        limit = asked or room
        drawn, stops = self._drawn(body, form, content, limit)
        options = body.get("stream_options") or {}
        usage, continuous = bool(options.get("include_usage")), bool(options.get("continuous_usage_stats"))
        output_tokens = min(drawn, limit)
        salt = body.get("cache_salt")
        hashes, answered = self._hashes(content, tokens, salt), tuple[int, ...]()
        if bounds and self.limits.enable_prefix_caching:  # the next prompt repeats the answer, a chat's as a message
            said = words(output_tokens) if form is None or form.text is None else form.text.encode()
            text = b"".join((content, b"" if path == COMPLETIONS_PATH else b"\n", said))
            answered = self._hashes(text, tokens + output_tokens, salt)[len(hashes) :]
        return Generation(
            path=path,
            stream=bounds is not None and bool(body.get("stream")),
            include_usage=usage,
            continuous_usage=usage and continuous,
            prompt_tokens=tokens,
            output_tokens=output_tokens,
            stops=stops,
            priority=body.get("priority") or 0,
            prefix_hashes=hashes,
            answer_hashes=answered,
            caching=self.limits.enable_prefix_caching,
            terms=_terms(body.get("vllm_xargs")),
            parts=prompt.parts,
            dimensions=body.get("dimensions") or DIMENSIONS,
            base64=body.get("encoding_format") == "base64",
            content_digest=b"" if bounds else blake2b(content, digest_size=16).digest(),
            transfer=body.get("kv_transfer_params") if bounds else None,
            form=form,
        )

    def _drawn(self, body: dict[str, Any], form: AnswerForm | None, content: bytes, limit: int) -> tuple[int, bool]:
        """Returns how many tokens the answer has if nothing cuts it off, and whether it then ends by itself."""
        if form is not None and form.text is not None:  # a grammar allows nothing after its end
            return form.tokens, form.tokens <= limit
        if body.get("ignore_eos"):
            return limit, False
        drawn = max(self.length.draw(content), body.get("min_tokens") or 0)
        return drawn, drawn <= limit

    def object_of(self, raw: bytes) -> dict[str, Any] | BadRequest:
        """Returns the body as a JSON object; BadRequest if it is not one or names another model than this engine's."""
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            return BadRequest(400, f"the body is not valid JSON: {error}")
        if not isinstance(body, dict):
            return BadRequest(400, "the body must be a JSON object")
        model = body.get("model")
        if model is not None and model != self.model:
            return BadRequest(404, f"The model `{model}` does not exist.", "model")
        return body

    def _field_error(self, body: dict[str, Any], path: str) -> BadRequest | None:
        for name, least in _INTEGERS.items():
            value = body.get(name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                return BadRequest(400, f"{name} must be an integer, got {value!r}", name)
            if value is not None and value < least:
                return BadRequest(400, f"{name} must be at least {least}, got {value}.", name)
        dimensions = body.get("dimensions") or 1
        if not isinstance(dimensions, int) or not 1 <= dimensions <= MAX_DIMENSIONS:
            return BadRequest(400, f"dimensions must be an integer from 1 to {MAX_DIMENSIONS}", "dimensions")
        if path == MESSAGES_PATH and body.get("max_tokens") is None:
            return BadRequest(400, "max_tokens is required", "max_tokens")
        if body.get("n", 1) not in (1, None):
            return BadRequest(
                400, "the emulated engine generates one choice per request: leave n out or set it to 1", "n"
            )
        if not isinstance(body.get("stream_options") or {}, dict):
            return BadRequest(400, "stream_options must be an object", "stream_options")
        if body.get("stream_options") and not body.get("stream"):
            return BadRequest(400, "Stream options can only be defined when `stream=True`.", "stream_options")
        if body.get("priority") and self.limits.scheduling_policy != "priority":
            return BadRequest(400, f"Got priority {body['priority']} but Priority scheduling is not enabled.")
        return None

    def _too_long(self, tokens: int, asked: int | None) -> BadRequest:
        longest = self.limits.max_model_len
        if tokens >= longest:
            return BadRequest(
                400,
                f"This model's maximum context length is {longest} tokens. However, your request has {tokens} input "
                "tokens. Please reduce the length of the input messages.",
                "input_tokens",
            )
        return BadRequest(
            400,
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is "
            f"{longest} tokens and your request has {tokens} input tokens ({asked} > {longest} - {tokens}).",
            "max_tokens",
        )

    def _hashes(self, content: bytes, tokens: int, salt: object) -> tuple[int, ...]:
        """Returns chained hashes of a text's full blocks, counting `BYTES_PER_TOKEN` bytes as a token. Texts with
        another `salt` share none of them.

        The hashes are comparable within this process only. The result is empty without prefix caching.
        """
        if not self.limits.enable_prefix_caching:
            return ()
        size = self.limits.block_size * BYTES_PER_TOKEN
        hashes, chained = [], hash(salt) if isinstance(salt, str) else 0
        for i in range(min(len(content) // size, tokens // self.limits.block_size)):
            chained = hash((chained, content[i * size : (i + 1) * size]))
            hashes.append(chained)
        return tuple(hashes)


def _terms(xargs: object) -> UrgencyTerms:
    if not isinstance(xargs, dict):
        return UrgencyTerms()
    urgency, tpot_ms, ttft_ms = (_finite(xargs.get(f"hmas_{name}")) for name in ("urgency", "tpot_ms", "ttft_ms"))
    return UrgencyTerms(
        inf if urgency is None else urgency,
        tpot_ms / 1000 if tpot_ms is not None and tpot_ms > 0 else None,
        ttft_ms / 1000 if ttft_ms is not None else None,
    )


def _finite(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) else None

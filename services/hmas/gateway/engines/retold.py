"""What a client is told otherwise than the answering engine said it: where KV lies is nobody's business outside, and of
a prompt that another engine computed, that one knows how many tokens it had cached."""

from typing import Any

import orjson

from hmas.gateway.engines.answer_checks import usage_of


def retold(answer: dict[str, Any], cached_tokens: int | None) -> bool:
    """Changes an answer, or an event's, of any form in place. `cached_tokens`: what the engine of the prompt said of
    them, None where it said nothing or this one computed it. Returns whether anything changed."""
    changed = answer.get("kv_transfer_params") is not None
    if changed:
        answer["kv_transfer_params"] = None
    if cached_tokens is None:
        return changed
    believed = usage_of(answer)
    if believed is None or believed.cached_tokens == cached_tokens or (believed.prompt_tokens or 0) < cached_tokens:
        return changed
    usage = answer["usage"]
    if "prompt_tokens" in usage:
        usage["prompt_tokens_details"] = _details(usage.get("prompt_tokens_details"), cached_tokens)
    elif "input_tokens_details" in usage:
        usage["input_tokens_details"] = _details(usage["input_tokens_details"], cached_tokens)
    else:  # Anthropic's counts what was cached apart
        usage["input_tokens"] = (believed.prompt_tokens or 0) - cached_tokens
        usage["cache_read_input_tokens"] = cached_tokens
    return True


def _details(told: object, cached_tokens: int) -> dict[str, Any]:
    return {**(told if isinstance(told, dict) else {}), "cached_tokens": cached_tokens}


def event_of(event: bytes, document: dict[str, Any]) -> bytes:
    """Returns an event of a stream with another document as its data."""
    kept = [line for line in event.splitlines() if not line.startswith(b"data:")]
    return b"\n".join((*kept, b"data: " + orjson.dumps(document)))

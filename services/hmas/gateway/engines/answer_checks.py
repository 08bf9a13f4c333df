"""What is believed of an engine's answer, in one place for whole answers and streams of every form: that it is an
answer, why it ended, and its counts of tokens.

An answer is whole only if it names why it ended. Without a reason, or with one of `NO_END`, it is lost, whatever came
before. A reason that is not known here is an end like any other, because engines add to them (vLLM has `repetition`)
and each says that nothing more comes.

Counts are believed all together or not at all; where they are not, the gateway's own hold: the tokens that it relayed
and its estimate of the prompt. Nothing goes by an answer's ids, which are passed on as they come: an answer belongs to
the request that was sent on its connection.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from hmas.gateway.api_form import ApiForm
from hmas.laws.figures import MOST_TOKENS, sane_int

# Reasons of an engine that gave an answer up, and of one that has not ended it.
NO_END = frozenset(("abort", "aborted", "cancelled", "error", "failed", "in_progress", "queued"))
NO_REASON = "the engine ended the answer without a reason for the end"
_GIVEN_UP = "the engine gave the answer up: it ended it with {!r}"
# By these faults an engine ends answers of its own accord, as vLLM does when somebody puts it to sleep.
ABORTED = frozenset(map(_GIVEN_UP.format, ("abort", "aborted", "cancelled")))
_MOST_BRACKETS = 200  # of a document whose depth is not tried: the JSON writer takes some 250 levels


@dataclass(frozen=True, slots=True)
class Usage:
    """The engine's own counts of tokens, each None if it reports none. `cached_tokens`: those of the prompt that it had
    in its cache."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    def within(self, max_tokens: int | None) -> "Usage":
        """Returns the counts, or none if they have more output than the request allowed; None: it set no bound."""
        return self if max_tokens is None or (self.output_tokens or 0) <= max_tokens else NO_USAGE


NO_USAGE = Usage()


def usage_of(document: Any, *, generated: int | None = None) -> Usage | None:
    """Returns the token counts of an answer or a chunk of any form of the API; None if it has no complete `usage`
    object, or one whose counts cannot be true or contradict one another. `generated`: the output's count where it may
    be left out. A prompt of 0 tokens is one that was not told."""
    usage = document.get("usage") if isinstance(document, dict) else None
    try:
        return _believed(usage, generated) if isinstance(usage, dict) else None
    except ValueError:
        return None


def _believed(usage: dict[str, Any], generated: int | None) -> Usage:
    if "input_tokens" in usage:  # of the Responses API, and of Anthropic's, where it is only what was not in the cache
        prompt, output = _count(usage["input_tokens"]), _count(usage.get("output_tokens", generated))
        cached, beside = _cached(usage.get("input_tokens_details")), _count(usage.get("cache_read_input_tokens") or 0)
        if beside:
            prompt, cached = prompt + beside, beside
    else:
        prompt, output = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens", generated))
        cached = _cached(usage.get("prompt_tokens_details"))
    total = usage.get("total_tokens")
    if (cached or 0) > prompt or (total is not None and total != prompt + output) or prompt > MOST_TOKENS:
        raise ValueError("the counts contradict one another")
    return Usage(prompt or None, output, cached)


def _cached(details: object) -> int | None:
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return None if cached is None else _count(cached)


def _count(value: object) -> int:
    count = sane_int(value, MOST_TOKENS) if isinstance(value, int) else None
    if count is None:
        raise ValueError("no count of tokens")
    return count


def reason_of(choices: Any) -> str:
    """Returns why the choices of an answer or a chunk ended, empty if none of them has. One that was lost counts
    first."""
    each = choices if isinstance(choices, list) else ()
    reasons = [choice.get("finish_reason") for choice in each if isinstance(choice, dict)]
    named = [reason for reason in reasons if isinstance(reason, str) and reason]
    return next(filter(is_lost, named), named[0] if named else "")


def is_lost(reason: str) -> bool:
    """Returns whether an answer that ended for this reason is not whole."""
    return not reason or reason.lower() in NO_END


def fault_of_end(reason: object) -> str:
    """Returns what is wrong with an answer that ended for this reason, empty if it is whole."""
    if not isinstance(reason, str) or not reason:
        return NO_REASON
    return _GIVEN_UP.format(reason.lower()) if is_lost(reason) else ""


def fault_of_answer(document: Any, form: ApiForm, body: bytes) -> str:
    """Returns what is wrong with an answer of status 200 that came whole, empty if nothing is. That it is no error
    object is known; `document` was read from `body`."""
    if isinstance(document, list):
        return "" if form.listed else "the engine's answer is not a JSON object"
    if not isinstance(document, dict) or not any(_is_there(document.get(name), name) for name in form.answers):
        return f"the engine's answer has no {' or '.join(form.answers)}"
    if body.count(b"[") + body.count(b"{") > _MOST_BRACKETS and not _can_be_written(document):
        return "the engine's answer is nested too deeply"
    if not form.reason:
        return ""
    if not form.chunked:
        return fault_of_end(document.get(form.reason))
    choices = document["choices"]
    if not choices or not all(isinstance(choice, dict) for choice in choices):
        return "the engine's answer has no choices, or one that is not an object"
    return next(filter(None, (fault_of_end(choice.get(form.reason)) for choice in choices)), "")


def _is_there(part: object, name: str) -> bool:
    return isinstance(part, list) or (name == "input_tokens" and isinstance(part, int) and sane_int(part) is not None)


def _can_be_written(document: Any) -> bool:
    try:
        orjson.dumps(document)
    except TypeError:
        return False
    return True

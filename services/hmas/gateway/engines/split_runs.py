"""The two legs of a split run: the prompt is computed by one engine, whose answer says where its KV is, and the other
engine gets that with the same body, as vLLM's NIXL connector has it where the reader pulls. A proxy may carry the
second leg, never the first one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from hmas.gateway.engines.answer_checks import usage_of
from hmas.gateway.engines.replies import ReplyEnd, refusal
from hmas.gateway.engines.runs import MAX_ERROR_BYTES, GatewayRun

# What makes any body one of a first leg, whatever the client asked for.
FIRST_LEG = {
    "max_tokens": 1,
    "max_completion_tokens": 1,
    "max_output_tokens": 1,
    "min_tokens": 0,
    "stream": False,
    "stream_options": None,
    "kv_transfer_params": {  # as llm-d's proxy and the production stack's router have it
        "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
        "remote_host": None, "remote_port": None,
    },
}  # fmt: skip
# Not every form knows each of these, and some refuse what they do not know.
_OF_FORM = {
    "/v1/chat/completions": ("max_tokens", "max_completion_tokens", "min_tokens", "stream", "stream_options"),
    "/v1/completions": ("max_tokens", "min_tokens", "stream", "stream_options"),
    "/v1/responses": ("max_output_tokens", "stream"),
    "/v1/messages": ("max_tokens", "stream"),
}
MAX_BYTES = 2**20  # of a first leg's answer


def first_leg_body(path: str, body: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Returns the body of a first leg: its fields come last, where they hold against the client's."""
    names = (*_OF_FORM.get(path, ()), "kv_transfer_params")
    return extended(body, {name: FIRST_LEG[name] for name in names})


@dataclass(slots=True)
class Handed:
    """What the first leg's answer says: where the KV is, and how many tokens of the prompt its engine had cached.
    `told`: the same as clients are told it, None where they are not."""

    params: dict[str, Any]
    cached_tokens: int | None
    told: int | None


class FirstLeg:
    """Receives the answer of a first leg. `done` is called once it says where the KV is; otherwise `run` ends, which
    may be tried elsewhere."""

    def __init__(self, run: GatewayRun, done: Callable[[], None]) -> None:
        self.handed: Handed | None = None
        self._run, self._done = run, done
        self._status, self._size = 0, 0
        self._bodies: list[bytes] = []

    def on_head(self, status: int) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= (MAX_BYTES if self._status == 200 else MAX_ERROR_BYTES):
            self._bodies.append(data)

    def on_complete(self) -> None:
        body = b"".join(self._bodies)
        if self._status != 200:
            self._run.end(refusal(self._status, body))
            return
        self.handed = _handed(body)
        if self.handed is None:
            self._run.fail("the engine that computed the prompt did not say where its KV is: kv_transfer_params")
            return
        self._run.http = None
        self._done()

    def on_failure(self, reason: str) -> None:
        self._run.on_failure(reason)

    def stop(self) -> None:
        """Does nothing: the run has the one connection that is open."""

    def blames(self, run: GatewayRun, end: ReplyEnd) -> bool:
        """Returns whether the engine that computes the prompt is at fault if `run` ends so."""
        return self.handed is None or lost_its_prompt(run, end)


def lost_its_prompt(run: GatewayRun, end: ReplyEnd) -> bool:
    """Returns whether an answer ended so because its engine could not read the prompt that another one computed, as far
    as its status tells. A proxy answers 503 if it cannot reach that engine."""
    return end.status >= 500 and not (end.busy or end.unreached or run.tokens)


def _handed(body: bytes) -> Handed | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    params = document.get("kv_transfer_params") if isinstance(document, dict) else None
    if not isinstance(params, dict) or not params:
        return None
    usage, cached = usage_of(document), params.get("remote_prefill_cached_tokens")
    told = None if usage is None else usage.cached_tokens
    if told is not None:
        cached = told
    return Handed(params, cached if isinstance(cached, int) and 0 <= cached < 2**31 else None, told)


def second_leg_body(body: tuple[bytes, bytes], handed: Handed, due_in_s: float | None) -> tuple[bytes, bytes]:
    """Returns the body of a second leg: the same with the first one's parameters, and with the time in which its first
    token is due, which vLLM passes on to its connector."""
    due = {} if due_in_s is None else {"hmas_due_ms": round(1000.0 * due_in_s)}
    return extended(body, {"kv_transfer_params": handed.params | due})


def extended(body: tuple[bytes, bytes], fields: dict[str, Any]) -> tuple[bytes, bytes]:
    """Returns a body, whose second part ends a JSON object, with more fields at its end."""
    start, rest = body
    return start, rest.rstrip()[:-1] + b"," + orjson.dumps(fields)[1:]

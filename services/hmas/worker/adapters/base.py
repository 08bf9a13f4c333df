"""The interface through which the worker's shell uses an engine of any kind."""

from dataclasses import dataclass
from typing import Protocol

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import EngineSampled, EngineWentDown, EngineWentUp

EngineEvent = EngineWentUp | EngineWentDown | EngineSampled


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob:
    """One dispatched request, as an engine adapter gets it.

    `path` is the HTTP path and `body` the client's JSON; `urgency` is its rank (lower first). `strip_usage`: remove the
    usage event from the stream, because the client did not ask for it. `tpot_s`: its TPOT SLO in seconds, None if only
    its last token is judged. `replay_output_tokens`: the output length that a replayed trace prescribes, otherwise
    None; only the adapter reads it, after all decisions.
    """

    request_id: str
    path: str
    body: bytes
    stream: bool
    strip_usage: bool
    prompt_tokens: int
    urgency: float
    replay_output_tokens: int | None = None
    traceparent: str = ""
    tpot_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a job ended on its engine.

    `outcome` is FINISHED, ENGINE_REFUSED, ENGINE_ERROR, INVALID_REQUEST (the body could not be sent), or NO_ENGINE if
    nothing listens at the engine's address. `status` is the HTTP status, 0 if none came. `data`: the last bytes for the
    client, or the engine's error body if it refused. `output_tokens`, `prompt_tokens`: the engine's own counts, None if
    it reports none. `retryable`: nothing was generated yet, so another engine may serve the request. `busy`: it failed
    because the engine has no room now.
    """

    outcome: Outcome
    message: str = ""
    status: int = 0
    data: bytes = b""
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    retryable: bool = False
    busy: bool = False


class JobSink(Protocol):
    """Receives the answer to one job. Its methods must not block."""

    def on_tokens(self, data: bytes, tokens: int) -> None:
        """Receives bytes for the client and the number of token events in them."""
        ...

    def on_end(self, end: JobEnd) -> None: ...


class EngineAdapter(Protocol):
    """The connection to one engine. `start` and `abort` return at once; answers arrive at the job's sink."""

    @property
    def name(self) -> str: ...

    def start(self, job: EngineJob, sink: JobSink) -> None: ...

    def abort(self, request_id: str) -> None:
        """Stops the request on the engine; its sink is not called any more. An unknown id is ignored."""
        ...

    def steer(self, n_run: int, b_token: int) -> None:
        """Passes the limits in force, sequences and decode tokens per step, to an engine that accepts them while it
        runs."""
        ...

    async def run(self) -> None:
        """Checks the engine's health and samples its metrics until cancelled."""
        ...

    async def close(self) -> None:
        """Ends all jobs, without calling their sinks, and closes all connections."""
        ...

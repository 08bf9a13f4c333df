"""What the worker's shell asks of an engine, whatever the engine is."""

from dataclasses import dataclass
from typing import Protocol

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import EngineSampled, EngineWentDown, EngineWentUp

EngineEvent = EngineWentUp | EngineWentDown | EngineSampled


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob:
    """One dispatched request. `body` is JSON for the engine; `urgency` ranks it (lower first). `tpot_s`: its TPOT SLO,
    None where only its last token is judged.

    `replay_output_tokens`: the length a replayed trace prescribes. Only the adapter reads it, after every decision.
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
    """How a job ended: FINISHED, ENGINE_REFUSED, ENGINE_ERROR, or NO_ENGINE where nobody listens at its address.

    `data`: the last bytes for the client (the engine's own error body where it refused). `output_tokens`,
    `prompt_tokens`: the engine's own counts, None where it tells none. `retryable`: nothing was generated yet;
    `busy`: because the engine has no room now.
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
    """Receives one job's answer. Must not block."""

    def on_tokens(self, data: bytes, tokens: int) -> None:
        """Bytes for the client and how many token events they hold."""
        ...

    def on_end(self, end: JobEnd) -> None: ...


class EngineAdapter(Protocol):
    """One engine. `start` and `abort` return at once."""

    @property
    def name(self) -> str: ...

    def start(self, job: EngineJob, sink: JobSink) -> None: ...

    def abort(self, request_id: str) -> None:
        """Frees the request on the engine; its sink hears nothing more. Unknown ids are ignored."""
        ...

    def steer(self, n_run: int, b_token: int) -> None:
        """Passes the caps in force to an engine that can be steered from inside."""
        ...

    async def run(self) -> None:
        """Probes and samples until cancelled."""
        ...

    async def close(self) -> None:
        """Ends every job and connection."""
        ...

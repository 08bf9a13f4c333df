"""The interface through which the worker's shell watches and steers an engine of any kind."""

from dataclasses import dataclass
from typing import Protocol

from hmas.contracts.execution import Ended
from hmas.contracts.worker import EngineSampled, EngineWentDown, EngineWentUp, KvCacheCounted

EngineEvent = EngineWentUp | EngineWentDown | EngineSampled | KvCacheCounted


@dataclass(slots=True, kw_only=True)
class GrantedRun:
    """A request that was granted to an engine, as its gateway tells of it.

    `urgency` is its rank (lower first), None if it is unknown because the run was adopted. `output_tokens`: those of
    which the gateway has told so far. The adapter sets `priority`, the number that the body is to carry in the engine's
    own convention (None: none), and `level`, by which an SGLang engine orders what waits in it.
    """

    prompt_tokens: int
    urgency: float | None
    output_tokens: int = 0
    priority: int | None = None
    level: int | None = None


class EngineAdapter(Protocol):
    """The watch over one engine. No method blocks but `run` and `close`."""

    @property
    def name(self) -> str: ...

    @property
    def plugin(self) -> bool:
        """Whether the engine reads a request's urgency and pace from its body."""
        ...

    def add(self, run: GrantedRun) -> None:
        """Counts a run on the engine, and sets its priority."""
        ...

    def remove(self, run: GrantedRun, end: Ended | None) -> None:
        """Counts a run no longer, because it ended as `end` says; None: it was declined, or its gateway is lost."""
        ...

    def judge(self, end: Ended) -> None:
        """Learns from the end of a run whether the engine is well."""
        ...

    def steer(self, n_run: int, b_token: int) -> None:
        """Passes the limits in force, sequences and decode tokens per step, to an engine that accepts them while it
        runs."""
        ...

    async def run(self) -> None:
        """Checks the engine's health and samples its metrics until cancelled."""
        ...

    async def close(self) -> None:
        """Gives the engine its own limits back, and closes all connections."""
        ...

"""Hosts an agent: turns posted events into steps, and hands the effects to the shell, in order."""

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from hmas.contracts.agent import Agent

Ev = TypeVar("Ev")
Ef = TypeVar("Ef")


class AgentHost(Generic[Ev, Ef]):
    """The one owner of an agent.

    `post` steps the agent at once on the caller's stack (the event loop's thread); an event posted while effects are
    executed waits its turn, so that steps never nest. `execute` must not block or raise; it may start tasks. `observe`
    sees every step before its effects are executed, and is held to the same.
    """

    def __init__(
        self,
        agent: Agent[Ev, Ef],
        execute: Callable[[Ef], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        observe: Callable[[float, Ev, list[Ef]], None] | None = None,
    ) -> None:
        self._agent = agent
        self._execute = execute
        self._clock = clock
        self._observe = observe
        self._inbox: deque[Ev] = deque()
        self._stepping = False

    def post(self, event: Ev) -> None:
        self._inbox.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._inbox:
                now_s, event = self._clock(), self._inbox.popleft()
                effects = self._agent.step(now_s, event)
                if self._observe is not None:
                    self._observe(now_s, event, effects)
                for effect in effects:
                    self._execute(effect)
        finally:
            self._stepping = False

"""The host of an agent: steps the agent for each posted event and carries out the effects in order."""

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from hmas.contracts.agent import Agent

Ev = TypeVar("Ev")
Ef = TypeVar("Ef")


class AgentHost(Generic[Ev, Ef]):
    """Owns an agent; nothing else may step it.

    `post` steps the agent before it returns, on the caller's stack in the event loop's thread. An event that is posted
    while effects are carried out waits until that step is finished, so that steps never nest. `execute` carries out one
    effect; `observe` gets every step before its effects are carried out. Neither may block or raise; both may start
    tasks. If anything raises nevertheless, `failed` gets the event and the exception, and the next event follows;
    without `failed` the exception is raised by `post`."""

    def __init__(
        self,
        agent: Agent[Ev, Ef],
        execute: Callable[[Ef], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        observe: Callable[[float, Ev, list[Ef]], None] | None = None,
        failed: Callable[[Ev, Exception], None] | None = None,
    ) -> None:
        self._agent = agent
        self._execute = execute
        self._clock = clock
        self._observe = observe
        self._failed = failed
        self._inbox: deque[Ev] = deque()
        self._stepping = False

    def post(self, event: Ev) -> None:
        self._inbox.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._inbox:
                event = self._inbox.popleft()
                try:
                    self._step(event)
                except Exception as error:
                    if self._failed is None:
                        raise
                    self._failed(event, error)
        finally:
            self._stepping = False

    def _step(self, event: Ev) -> None:
        now_s = self._clock()
        effects = self._agent.step(now_s, event)
        if self._observe is not None:
            self._observe(now_s, event, effects)
        for effect in effects:
            self._execute(effect)

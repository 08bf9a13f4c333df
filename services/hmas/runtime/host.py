"""The host of an agent: steps the agent for each posted event and carries out the effects in order."""

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from hmas.contracts.agent import Agent

Ev = TypeVar("Ev")
Ef = TypeVar("Ef")


def raise_it(cause: object, error: Exception) -> NoReturn:
    """Ends what goes on with the error: the policy of tests, in which a defect must not be survived."""
    raise error


class AgentHost(Generic[Ev, Ef]):
    """Owns an agent; nothing else may step it.

    `post` steps the agent before it returns, on the caller's stack in the event loop's thread. An event that is posted
    while effects are carried out waits until that step is finished, so that steps never nest. `execute` carries out one
    effect; `observe` gets every step before its effects are carried out. Neither may block or raise; both may start
    tasks. If anything raises nevertheless, `failed` gets the exception, and the event or the effect at which it was
    raised; then the next effect or event follows. What `failed` raises (`raise_it`) is raised by `post`."""

    def __init__(
        self,
        agent: Agent[Ev, Ef],
        execute: Callable[[Ef], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        failed: Callable[[Ev | Ef, Exception], None],
        observe: Callable[[float, Ev, list[Ef]], None] | None = None,
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
                self._step(self._inbox.popleft())
        finally:
            self._stepping = False

    def _step(self, event: Ev) -> None:
        effects: list[Ef] = []
        try:
            now_s = self._clock()
            effects = self._agent.step(now_s, event)
            if self._observe is not None:
                self._observe(now_s, event, effects)
        except Exception as error:
            self._failed(event, error)
        for effect in effects:
            try:
                self._execute(effect)
            except Exception as error:
                self._failed(effect, error)

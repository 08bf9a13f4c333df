"""The simulator's shell around perception and prediction: it runs their models in virtual time."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Generic

from hmas.contracts.agent import Agent
from hmas.contracts.cognition import Answer, AnswerCall, BatchReturned, CallReceived, Item, Result, Row, RunBatch
from hmas.contracts.control_agents import TimerTicked
from hmas.sim.processes.ports import MeshPort
from hmas.sim.times import ModelTimes


class ModelServer(Generic[Item, Row, Result, Answer]):
    """Steps the agent of one service as the live shell does. `model` gives the results of a batch, which the agent gets
    when the model would be done."""

    def __init__(
        self,
        mesh: MeshPort,
        label: str,
        agent: Agent[Any, Any],
        model: Callable[[Sequence[Row]], Sequence[Result]],
        times: ModelTimes,
    ) -> None:
        self._mesh, self._heap, self._label, self._agent = mesh, mesh.heap, label, agent
        self._model, self._times = model, times
        self._calls: dict[int, Callable[[tuple[Answer, ...]], None]] = {}
        self._numbers = count(1)
        self._handlers: dict[type, Callable[[Any], None]] = {RunBatch: self._run, AnswerCall: self._answer}

    def hear(self, event: object) -> None:
        self._mesh.step(self._label, self._agent, event, self._handlers)

    def call(self, items: tuple[Item, ...], answered: Callable[[tuple[Answer, ...]], None]) -> None:
        """Sends a call; `answered` gets the answers, one for each item."""
        self._heap.after(self._times.network_s, self._called, items, answered)

    def _called(self, items: tuple[Item, ...], answered: Callable[[tuple[Answer, ...]], None]) -> None:
        number = next(self._numbers)
        self._calls[number] = answered
        self.hear(CallReceived(number, items, self._times.budget_s))
        if number in self._calls:
            self._heap.after(self._times.budget_s, self._expire, number)

    def _expire(self, number: int) -> None:
        if number in self._calls:
            self.hear(TimerTicked())

    def _run(self, effect: RunBatch[Row]) -> None:
        self._heap.after(self._times.batch_s(len(effect.rows)), self._returned, effect)

    def _returned(self, effect: RunBatch[Row]) -> None:
        cpu_s = self._times.batch_s(len(effect.rows))
        self.hear(BatchReturned(effect.batch, tuple(self._model(effect.rows)), cpu_s))

    def _answer(self, effect: AnswerCall[Answer]) -> None:
        self._heap.after(self._times.network_s, self._calls.pop(effect.call), effect.answers)

"""One process of the simulated mesh: a gateway or a worker, with its agent, its timers and its end."""

from collections.abc import Callable
from typing import Any

from hmas.contracts.agent import Agent
from hmas.sim.processes.ports import MeshPort

Call = Callable[..., object]


class SimProcess:
    """A process that may freeze, thaw and be killed; a restarted one is another object with another `incarnation`.

    Whatever reaches it from outside comes through `post`: a frozen process gets it when it thaws, in order, and a dead
    one never. `label` names the process in logs and recordings.
    """

    def __init__(self, mesh: MeshPort, name: str, incarnation: int, agent: Agent[Any, Any]) -> None:
        self.name = name
        self.incarnation = incarnation
        self.label = name if incarnation == 1 else f"{name}-{incarnation}"
        self.agent = agent
        self.alive = True
        self._mesh = mesh
        self._heap = mesh.heap
        self._frozen_s: float | None = None
        self._inbox: list[tuple[Call, tuple[Any, ...]]] = []
        self._due: dict[Call, None] = {}  # timers that came due while the process was frozen
        self._handlers: dict[type, Callable[[Any], None]] = {}

    @property
    def id(self) -> str:
        """The name of this one process, which no process before or after it has."""
        return f"{self.name}#{self.incarnation}"

    @property
    def frozen(self) -> bool:
        return self._frozen_s is not None

    def post(self, call: Call, *args: Any) -> None:
        """Makes `call(*args)` in this process, now or when it thaws."""
        if self._frozen_s is not None:
            self._inbox.append((call, args))
        elif self.alive:
            call(*args)

    def hear(self, event: Any) -> None:
        """Steps the agent with an event from outside."""
        self.post(self.step, event)

    def step(self, event: Any) -> None:
        self._mesh.step(self.label, self.agent, event, self._handlers)

    def every(self, period_s: float, event: Callable[[], object]) -> None:
        """Calls `event` every `period_s` seconds, first one period from now. What is missed in a freeze is made up for
        once."""

        def tick() -> None:
            if not self.alive:
                return
            if self.frozen:
                self._due[event] = None
            else:
                event()
            self._heap.after(period_s, tick)

        self._heap.after(period_s, tick)

    def freeze(self) -> None:
        if self.alive and self._frozen_s is None:
            self._frozen_s = self._heap.now_s
            self._hearing_changed()

    def thaw(self) -> None:
        """Wakes the process: it closes the streams it has not read for too long, and handles what has come since."""
        if self._frozen_s is None or not self.alive:
            return
        frozen_s, self._frozen_s = self._heap.now_s - self._frozen_s, None
        for stream in self._mesh.streams_of(self.name):
            stream.thawed(self.name, frozen_s)
        self._hearing_changed()
        inbox, self._inbox = self._inbox, []
        for call, args in inbox:
            call(*args)
        due, self._due = self._due, {}
        for event in due:
            event()

    def kill(self) -> None:
        """Ends the process, if it lives, without a word; the system closes its connections."""
        if not self.alive:
            return
        self.alive, self._frozen_s = False, None
        self._inbox.clear()
        for stream in self._mesh.streams_of(self.name):
            stream.died(self.name)

    def _hearing_changed(self) -> None:
        for stream in self._mesh.streams_of(self.name):
            stream.hearing_changed()

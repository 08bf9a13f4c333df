"""Engines of a card in virtual time: those that compute share its time evenly, and one that sleeps computes nothing."""

from collections.abc import Callable, Iterable

from experiments.residency.models import CardModel
from hmas.contracts.residency import Readiness
from hmas.engine.core import EngineCore
from hmas.engine.core.sleep_loss import lose_kv
from hmas.engine.core.step import StepResult
from hmas.sim.processes.engine import SimEngine
from hmas.sim.processes.heap import EventHeap

STEP_POLL_S = 0.01  # how often a sleep that is over looks whether the last step is, too


class SharedCard:
    """The engines of `models`, all asleep at first. `stepped` hears of first and last tokens."""

    def __init__(
        self, heap: EventHeap, models: Iterable[CardModel], stepped: Callable[[SimEngine, StepResult], None]
    ) -> None:
        self._heap, self._stepped = heap, stepped
        self.engines = {m.name: SimEngine(heap, EngineCore(m.profile), m.name, self._on_step) for m in models}
        self.state = dict.fromkeys(self.engines, Readiness.ASLEEP)
        self._factors = dict.fromkeys(self.engines, 1)
        for engine in self.engines.values():
            engine.pause()

    def share(self) -> None:
        """Divides the card's time among the engines that have something to do."""
        busy = [n for n, e in self.engines.items() if self.state[n] is Readiness.AWAKE and _has_work(e)]
        for name in busy:
            if self._factors[name] != len(busy):
                self._factors[name] = len(busy)
                self.engines[name].slow(float(len(busy)))

    def _on_step(self, engine: SimEngine, result: StepResult) -> None:
        self._stepped(engine, result)
        self._heap.after(0.0, self.share)

    def sleep(self, name: str, seconds: float, ended: Callable[[str], None]) -> None:
        self.state[name] = Readiness.FALLING
        self.engines[name].pause()
        self.share()
        self._heap.after(seconds, self._fallen, name, ended)

    def _fallen(self, name: str, ended: Callable[[str], None]) -> None:
        engine = self.engines[name]
        if not engine.idle:
            self._heap.after(STEP_POLL_S, self._fallen, name, ended)
            return
        lose_kv(engine.core)
        if not engine.core.kv.reset():
            raise RuntimeError(f"{name} sleeps and still holds KV")
        self.state[name] = Readiness.ASLEEP
        ended(name)

    def wake(self, name: str, seconds: float, ended: Callable[[str], None]) -> None:
        self.state[name] = Readiness.WAKING
        self._heap.after(seconds, self._woken, name, ended)

    def _woken(self, name: str, ended: Callable[[str], None]) -> None:
        self.state[name] = Readiness.AWAKE
        self.engines[name].resume()
        self.share()
        ended(name)


def _has_work(engine: SimEngine) -> bool:
    return bool(engine.core.running or len(engine.core.waiting))

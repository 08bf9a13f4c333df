"""How long queued requests wait for engines that are asleep, because none that is awake could ever take them."""

from collections.abc import Iterable

from hmas.worker.agent.engines.admission import AdmissionGate
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import EntryState, QueueEntry

WAITING = (EntryState.PARKED, EntryState.QUEUED)


class SleepWaits:
    """Notes in each waiting request since when only sleeping engines could take it, and for how long it was so before
    (`QueueEntry.asleep_since_s`, `asleep_s`). Whether engines are busy, or their gateway reaches them, counts for
    nothing here."""

    def __init__(self, gate: AdmissionGate) -> None:
        self._gate = gate
        self._up: list[EngineState] = []
        self._any = False  # whether one of them is asleep

    def see_engines(self, now_s: float, up: list[EngineState], entries: Iterable[QueueEntry]) -> None:
        """Learns which engines are up, or that one of them fell asleep or woke. `entries`: all requests."""
        before, self._up = self._any, up
        self._any = any(engine.life.asleep for engine in up)
        if self._any or before:
            for entry in entries:
                if entry.state in WAITING:
                    self.note(now_s, entry)

    def note(self, now_s: float, entry: QueueEntry) -> None:
        """Notes of a request that waits, or waits again, whether only sleeping engines could take it."""
        if self._any and self._only_sleepers(entry):
            if entry.asleep_since_s is None:
                entry.asleep_since_s = now_s
        else:
            self.end(now_s, entry)

    def end(self, now_s: float, entry: QueueEntry) -> None:
        """Notes that a request does not wait for a sleeping engine, or no longer."""
        if entry.asleep_since_s is not None:
            entry.asleep_s += now_s - entry.asleep_since_s
            entry.asleep_since_s = None

    def count(self, entries: Iterable[QueueEntry]) -> int:
        """Returns how many of the requests wait for sleeping engines."""
        return sum(e.asleep_since_s is not None and e.state in WAITING for e in entries) if self._any else 0

    def _only_sleepers(self, entry: QueueEntry) -> bool:
        fitting = [
            engine.life.asleep
            for engine in self._up
            if engine.start_id not in entry.tried and self._gate.could_ever(engine, entry.request.prompt_tokens)
        ]
        return bool(fitting) and all(fitting)

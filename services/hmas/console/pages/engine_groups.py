"""Groups of engines: those of one instance type, or on the same cards, with their load and their classes."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hmas.console.pages.numbers import rounded
from hmas.console.state import ConsoleState
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.telemetry import EngineSample
from hmas.laws.layout import bounds_ms, engine_classes, engine_path


@dataclass(frozen=True, slots=True)
class SeenEngine:
    """An engine that a heartbeat tells of. `pace_class` is the number of its class and its bounds in words, which are
    empty where the layout is mixed."""

    pool: str
    kind: EngineKind
    serves: bool
    pace_class: tuple[int, str]
    sample: EngineSample | None


@dataclass(slots=True)
class EngineGroup:
    """The engines of a group together."""

    up: int = 0
    down: int = 0
    running: int = 0
    waiting: int = 0
    loads: list[float] = field(default_factory=list)
    classes: Counter[tuple[int, str]] = field(default_factory=Counter)

    def add(self, engine: SeenEngine) -> None:
        if not engine.serves:
            self.down += 1
            return
        self.up += 1
        self.classes[engine.pace_class] += 1
        if engine.sample is not None:
            self.running += engine.sample.running
            self.waiting += engine.sample.waiting
            self.loads.append(engine.sample.utilisation)

    def view(self) -> dict[str, Any]:
        """Returns its figures; `load` is the mean of those that serve, -1 if there is none."""
        split = any(words for _, words in self.classes)
        told = ", ".join(f"{words}: {count}" for (_, words), count in sorted(self.classes.items()))
        return {
            "up": self.up, "down": self.down, "running": self.running, "waiting": self.waiting,
            "load": rounded(sum(self.loads) / len(self.loads), 2) if self.loads else -1.0,
            "classes": told if split else "mixed" if self.up else "",
        }  # fmt: skip


def seen_engines(state: ConsoleState, now_s: float) -> Iterator[SeenEngine]:
    """Yields all engines. One that is asleep, or whose worker drains or is lost, does not serve."""
    for worker, row in state.top.workers.items():
        if (beat := row.heartbeat) is None:
            continue
        layout = state.top.layout(beat.pool)
        samples = {each.engine: each for each in row.telemetry.engines} if row.telemetry else {}
        for each in beat.engines:
            path = engine_path(worker, each.engine)
            number = engine_classes(layout, [path])[path]
            serves = each.serves and not beat.draining and not row.lost(now_s)
            words = bounds_ms(layout.cuts_s, number)
            yield SeenEngine(beat.pool, each.engine_kind, serves, (number, words), samples.get(each.engine))


def group_view(engines: Iterable[SeenEngine]) -> dict[str, Any]:
    """Returns the figures of these engines together."""
    group = EngineGroup()
    for each in engines:
        group.add(each)
    return group.view()

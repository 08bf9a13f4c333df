"""Which series a process's metrics have: names come and go for as long as it runs, and each series costs memory here
and in Prometheus, and would tell of what is gone."""

from collections import OrderedDict
from collections.abc import Container
from typing import TypeVar

from prometheus_client import Counter, Gauge

M = TypeVar("M", Counter, Gauge)
MOST_NAMES = 1024  # as many as a worker may have engines


class NamedSeries:
    """The series of metrics by the engine, worker or pool that they tell of. Of more than `most` names the one that was
    shown longest ago is forgotten."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._names: OrderedDict[str, set[tuple[Counter | Gauge, tuple[str, ...]]]] = OrderedDict()

    def of(self, name: str, metric: M, *labels: str) -> M:
        """Returns the series of a metric with these labels, which tells of `name`."""
        self._names.setdefault(name, set()).add((metric, labels))
        self._names.move_to_end(name)
        if len(self._names) > self._most:
            self.forget(next(iter(self._names)))
        return metric.labels(*labels)

    def keep(self, names: Container[str]) -> None:
        """Forgets all names but these."""
        for name in [each for each in self._names if each not in names]:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Removes all series that tell of `name`."""
        for metric, labels in self._names.pop(name, ()):
            metric.remove(*labels)

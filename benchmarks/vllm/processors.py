"""Who was busy during a replay: the engine core, or what surrounds it."""

import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Busy:
    """Shares of a stretch of time. `core`: processor time of the engine core. `others`: of the processors that all
    else shares."""

    core: float
    others: float


class Processors:
    """Measures from its making to `busy`."""

    def __init__(self, core_pid: int, others: set[int]) -> None:
        self._core = psutil.Process(core_pid)
        self._others = sorted(others)
        self._since_s = time.monotonic()
        self._core_s, self._free_s = self._read()

    def busy(self) -> Busy:
        passed_s = time.monotonic() - self._since_s
        core_s, free_s = self._read()
        return Busy(
            (core_s - self._core_s) / passed_s,
            1.0 - (free_s - self._free_s) / (passed_s * len(self._others)),
        )

    def _read(self) -> tuple[float, float]:
        """Processor seconds of the engine core, and free ones of the others: niced work gives way."""
        used, every = self._core.cpu_times(), psutil.cpu_times(percpu=True)
        free_s = sum(getattr(every[n], kind, 0.0) for n in self._others for kind in ("idle", "iowait", "nice"))
        return used.user + used.system, free_s

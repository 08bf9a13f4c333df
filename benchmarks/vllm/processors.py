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
        self._core_s, self._idle_s = self._read()

    def busy(self) -> Busy:
        passed_s = time.monotonic() - self._since_s
        core_s, idle_s = self._read()
        return Busy(
            (core_s - self._core_s) / passed_s,
            1.0 - (idle_s - self._idle_s) / (passed_s * len(self._others)),
        )

    def _read(self) -> tuple[float, float]:
        """Processor seconds of the engine core, and idle ones of the others."""
        used, every = self._core.cpu_times(), psutil.cpu_times(percpu=True)
        return used.user + used.system, sum(every[n].idle + getattr(every[n], "iowait", 0.0) for n in self._others)

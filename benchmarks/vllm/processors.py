"""Measures, during a replay, how busy vLLM's engine-core process kept its processor, and how busy all other processes
kept the rest."""

import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Busy:
    """Use of the processors over a time, 0 to 1: `core` by the engine core on its own processor, `others` of the
    processors that all other processes share."""

    core: float
    others: float


class Processors:
    """Measures how busy the processors are from its creation until `busy` is called. `core_pid` is the process of the
    engine core; `others` are the numbers of the other processors."""

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
        """Returns the CPU seconds used by the engine core, and those left free by the others; low-priority (niced) work
        counts as free, because it gives way."""
        used, every = self._core.cpu_times(), psutil.cpu_times(percpu=True)
        free_s = sum(getattr(every[n], kind, 0.0) for n in self._others for kind in ("idle", "iowait", "nice"))
        return used.user + used.system, free_s

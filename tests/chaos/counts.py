"""Engines' own counts of their sequences over time, and when these were more than N_run."""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import httpx

SAMPLE_S = 0.1


@dataclass(frozen=True)
class Excess:
    """A time in which an engine had `most` sequences more than N_run. `begun`: when something began on a full engine.
    Instants are on the monotonic clock, in s."""

    engine: str
    from_s: float
    until_s: float
    most: int
    begun: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.most} on {self.engine} for {self.until_s - self.from_s:.1f} s"


def excesses(engine: str, samples: list[tuple[float, int]], n_run: int) -> list[Excess]:
    """Returns the times of an engine above `n_run`, of samples (instant, count)."""
    found: list[Excess] = []
    over: list[tuple[float, int]] = []
    begun: list[float] = []
    for (_, before), (at_s, count) in pairwise([(0.0, 0), *samples]):
        if count > n_run:
            over.append((at_s, count - n_run))
            if count > before:
                begun.append(at_s)
        if over and (count <= n_run or at_s == samples[-1][0]):
            found.append(Excess(engine, over[0][0], at_s, max(most for _, most in over), tuple(begun)))
            over, begun = [], []
    return found


def in_engine(page: str) -> int:
    """Returns how many sequences run or wait in an engine, of its page of metrics."""
    wanted = "vllm:num_requests_running{", "vllm:num_requests_waiting{"
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(wanted)))


class CountLog:
    """Asks engines for their counts every `SAMPLE_S` inside the `with` block, each in a thread of its own."""

    def __init__(self, urls: list[str]) -> None:
        self._samples: dict[str, list[tuple[float, int]]] = {url: [] for url in urls}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=each) for each in self._samples.items()]

    def __enter__(self) -> "CountLog":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, url: str, samples: list[tuple[float, int]]) -> None:
        with httpx.Client(timeout=30) as client:
            while not self._over.wait(SAMPLE_S):
                with suppress(httpx.TransportError):  # it is dead for the moment
                    samples.append((time.monotonic(), in_engine(client.get(f"{url}/metrics").text)))

    def most(self) -> int:
        return max(count for samples in self._samples.values() for _, count in samples)

    def excesses(self, n_run: int) -> list[Excess]:
        """Returns the times above `n_run`, engine by engine."""
        named = enumerate(self._samples.values(), 1)
        return [excess for n, samples in named for excess in excesses(f"engine-{n}", samples, n_run)]

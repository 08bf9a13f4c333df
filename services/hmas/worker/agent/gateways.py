"""The gateways of a worker: whose requests may be granted, what each has yet to start, and what it cannot reach."""

from collections.abc import Iterable, Iterator
from math import floor

from hmas.contracts.execution import EngineShare
from hmas.worker.agent.config import GatewayLinkConfig
from hmas.worker.agent.entry import QueueEntry


class Gateway:
    """One gateway process with an open stream.

    `named` are the requests of its snapshot, until the snapshot is complete and `synced` is true. `unstarted` are its
    grants that it has not answered, the oldest first. `parked` are its waiting requests while none may be granted.
    `demand` is its smoothed number of running and waiting requests.
    """

    def __init__(self, name: str, config: GatewayLinkConfig) -> None:
        self.name = name
        self.synced = False
        self.named: set[str] = set()
        self.unstarted: dict[str, QueueEntry] = {}
        self.parked: dict[str, QueueEntry] = {}
        self.demand = 0.0
        self._config = config
        self._lagging = False
        self._blocks: dict[str, tuple[float, float]] = {}  # engine: end of the block, its length in s

    def answered(self, request_id: str) -> None:
        """Records that the gateway has answered the grant of a request."""
        self.unstarted.pop(request_id, None)

    def see(self, now_s: float) -> None:
        """Judges whether the gateway lags: its oldest unanswered grant is older than `lag_s`."""
        oldest = next(iter(self.unstarted.values()), None)
        self._lagging = oldest is not None and _age_s(now_s, oldest) > self._config.lag_s

    def overdue(self, now_s: float) -> Iterator[QueueEntry]:
        """Yields the grants that are unanswered for more than `start_due_s` and were not stopped yet."""
        for entry in self.unstarted.values():
            if _age_s(now_s, entry) <= self._config.start_due_s:
                return
            if not entry.stopped:
                yield entry

    def block(self, now_s: float, engine: str) -> None:
        """Records that the gateway could not connect to an engine: nothing is granted to the pair for a while, twice as
        long each time in a row."""
        length_s = min(self._config.max_block_s, 2.0 * self._blocks.get(engine, (0.0, self._config.block_s / 2))[1])
        self._blocks[engine] = (now_s + length_s, length_s)

    def reached(self, engine: str) -> None:
        self._blocks.pop(engine, None)

    def blocked(self, now_s: float, engine: str) -> bool:
        block = self._blocks.get(engine)
        return block is not None and now_s < block[0]

    def grantable(self, now_s: float, engines: Iterable[str]) -> bool:
        """Returns whether its requests may be granted on any of `engines`; true if there are none."""
        if not self.synced or self._lagging:
            return False
        if not self._blocks:
            return True
        names = list(engines)
        return not names or any(not self.blocked(now_s, name) for name in names)


def _age_s(now_s: float, entry: QueueEntry) -> float:
    return now_s - (now_s if entry.granted_s is None else entry.granted_s)


def shares(gateway: Gateway, every: list[Gateway], limits: Iterable[tuple[str, int]]) -> tuple[EngineShare, ...]:
    """Returns how many of each engine's sequences `gateway` may run while the worker is silent.

    `limits` are the engines with their N_run. It is split by the gateways' demands, at least 1 for each while N_run
    allows; over all gateways the shares of an engine add up to its N_run.
    """
    ahead = every.index(gateway)
    return tuple(EngineShare(name, _split(n_run, [g.demand for g in every])[ahead]) for name, n_run in limits)


def _split(whole: int, demands: list[float]) -> list[int]:
    """Splits `whole` by largest remainders, after one for each."""
    each = 1 if whole >= len(demands) else 0
    rest, total = whole - each * len(demands), sum(demands)
    exact = [rest * (d / total if total > 0.0 else 1.0 / len(demands)) for d in demands]
    parts = [each + floor(part) for part in exact]
    order = sorted(range(len(demands)), key=lambda i: (floor(exact[i]) - exact[i], i))
    for i in order[: whole - sum(parts)]:
        parts[i] += 1
    return parts

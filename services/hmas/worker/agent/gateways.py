"""The gateways of a worker: whose requests may be granted, what each has yet to start, and what it cannot reach."""

from collections.abc import Iterable, Iterator
from math import floor, inf

from hmas.contracts.execution import EngineShare
from hmas.worker.agent.config import GatewayLinkConfig
from hmas.worker.agent.entry.entry import QueueEntry


class Gateway:
    """One gateway process with an open stream.

    `named` are the requests of its snapshot, until the snapshot is complete and `synced` is true. `unstarted` are its
    grants that it has not answered, the oldest first. `lagging` is true while the oldest is older than `lag_s`, as last
    judged. `parked` are its waiting requests that could not be granted when last tried. `demand` is its smoothed number
    of running and waiting requests.
    """

    def __init__(self, name: str, config: GatewayLinkConfig) -> None:
        self.name = name
        self.synced = False
        self.named: set[str] = set()
        self.unstarted: dict[str, QueueEntry] = {}
        self.parked: dict[str, QueueEntry] = {}
        self.demand = 0.0
        self.lagging = False
        self._config = config
        self._blocks: dict[str, float] = {}  # engine: end of the block
        self._lengths: dict[str, float] = {}  # engine: length of its last block, in s

    def answered(self, request_id: str) -> None:
        """Records that the gateway has answered the grant of a request."""
        self.unstarted.pop(request_id, None)

    def see(self, now_s: float) -> bool:
        """Judges whether the gateway lags. Returns whether what was parked may be granted now: the gateway has caught
        up, or a block has ended since the last call."""
        lagged, self.lagging = self.lagging, self._late(now_s)
        ended = [engine for engine in self._blocks if not self.blocked(now_s, engine)]
        for engine in ended:
            del self._blocks[engine]
        return (lagged or bool(ended)) and self.synced and not self.lagging

    def _late(self, now_s: float) -> bool:
        oldest = next(iter(self.unstarted.values()), None)
        return oldest is not None and _age_s(now_s, oldest) > self._config.lag_s

    def overdue(self, now_s: float) -> Iterator[QueueEntry]:
        """Yields the grants that are unanswered for more than `start_due_s`."""
        for entry in self.unstarted.values():
            if _age_s(now_s, entry) <= self._config.start_due_s:
                return
            yield entry

    def block(self, now_s: float, engine: str) -> None:
        """Records that the gateway could not connect to an engine: nothing is granted to the pair for a while, twice as
        long each time in a row. Grants that fail while a block lasts were made before it; they double nothing."""
        config = self._config
        if self.blocked(now_s, engine):
            self._blocks[engine] = max(self._blocks[engine], now_s + config.block_s)
        else:
            length_s = min(config.max_block_s, 2.0 * self._lengths.get(engine, config.block_s / 2))
            self._blocks[engine], self._lengths[engine] = now_s + length_s, length_s

    def reached(self, now_s: float, engine: str) -> None:
        """Records that an engine answered the gateway; a block in force stays, because the connection may be an older
        one."""
        if not self.blocked(now_s, engine):
            self._lengths.pop(engine, None)

    def blocked(self, now_s: float, engine: str) -> bool:
        return now_s < self._blocks.get(engine, -inf)

    def grantable(self, now_s: float, engines: Iterable[str]) -> bool:
        """Returns whether its requests may be granted on any of `engines`; true if there are none."""
        if not self.synced or self.lagging:
            return False
        self.lagging = self._late(now_s)
        if self.lagging:
            return False
        if not self._blocks:
            return True
        names = list(engines)
        return not names or any(not self.blocked(now_s, name) for name in names)


def _age_s(now_s: float, entry: QueueEntry) -> float:
    return now_s - (now_s if entry.granted_s is None else entry.granted_s)


def shares(gateways: list[Gateway], limits: Iterable[tuple[str, int]]) -> list[tuple[EngineShare, ...]]:
    """Returns for each gateway how many of each engine's sequences it may run while the worker is silent.

    `limits` are the engines with their static N_run: nobody regulates meanwhile, and the N_run of the moment would stay
    for as long as the worker is silent. It is split by the gateways' demands, at least 1 for each while it allows; over
    all gateways the shares of an engine add up to it.
    """
    demands = [gateway.demand for gateway in gateways]
    split = [[EngineShare(name, part) for part in _split(n_run, demands)] for name, n_run in limits]
    return list(zip(*split, strict=True)) or [()] * len(gateways)


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

"""The models that the mesh serves: pools, their aliases, and their entries in `/v1/models`."""

from dataclasses import dataclass

from hmas.contracts.registry import WorkerHeartbeat


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model or alias as `/v1/models` lists it.

    `root` is the pool that `id` stands for. `max_model_len` is the longest context of the pool's engines in tokens,
    None if no engine reported it.
    """

    id: str
    root: str
    max_model_len: int | None


class ModelDirectory:
    """The pools by name and alias, learned from workers' heartbeats.

    A pool stays known when its workers die, so that its clients get 503 and not 404. At most `max_pools` are kept:
    those with the latest heartbeats. A pool's name outranks an alias; if two pools claim one alias, the first keeps it.
    """

    def __init__(self, max_pools: int) -> None:
        self._max_pools = max_pools
        self._pools: dict[str, WorkerHeartbeat] = {}  # the last heartbeat of each, least recently heard first
        self._aliases: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._pools)

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        self._pools.pop(heartbeat.pool, None)
        self._pools[heartbeat.pool] = heartbeat
        for alias in heartbeat.aliases:
            self._aliases.setdefault(alias, heartbeat.pool)
        if len(self._pools) > self._max_pools:
            forgotten = next(iter(self._pools))
            del self._pools[forgotten]
            self._aliases = {alias: pool for alias, pool in self._aliases.items() if pool != forgotten}

    def resolve(self, name: str) -> str | None:
        """Returns the pool of a model name or alias, or None if no pool has that name or alias."""
        return name if name in self._pools else self._aliases.get(name)

    def cards(self) -> list[ModelCard]:
        """Returns a card for each pool, then one for each alias, both in alphabetical order."""
        pools = [ModelCard(name, name, self._max_model_len(name)) for name in sorted(self._pools)]
        aliases = [
            ModelCard(alias, pool, self._max_model_len(pool))
            for alias, pool in sorted(self._aliases.items())
            if alias not in self._pools
        ]
        return pools + aliases

    def _max_model_len(self, pool: str) -> int | None:
        return max((e.max_model_len for e in self._pools[pool].engines if e.max_model_len > 0), default=None)

"""Which models the mesh serves: pools, their aliases and what `/v1/models` says of them."""

from dataclasses import dataclass

from hmas.contracts.registry import WorkerHeartbeat


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One line of `/v1/models`. `root` is the pool an alias stands for; `max_model_len` None where nobody told."""

    id: str
    root: str
    max_model_len: int | None


class ModelDirectory:
    """Pools by name and alias, as heartbeats told them.

    A pool stays known when its workers die, so that its clients hear 503 and not 404. At most `max_pools` are kept,
    those heard of last. A pool's name outranks an alias; of two pools with one alias the one heard first has it.
    """

    def __init__(self, max_pools: int = 256) -> None:
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
        """The pool of a model name or alias; None if the mesh does not know it."""
        return name if name in self._pools else self._aliases.get(name)

    def cards(self) -> list[ModelCard]:
        """Pools first, then aliases, each in alphabetical order."""
        pools = [ModelCard(name, name, self._max_model_len(name)) for name in sorted(self._pools)]
        aliases = [
            ModelCard(alias, pool, self._max_model_len(pool))
            for alias, pool in sorted(self._aliases.items())
            if alias not in self._pools
        ]
        return pools + aliases

    def _max_model_len(self, pool: str) -> int | None:
        return max((e.max_model_len for e in self._pools[pool].engines if e.max_model_len > 0), default=None)

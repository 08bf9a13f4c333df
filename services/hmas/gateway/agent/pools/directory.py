"""The models that the mesh serves: pools, their aliases, and their entries in `/v1/models`."""

from dataclasses import dataclass

from hmas.contracts.registry import WorkerHeartbeat


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model, adapter or alias as `/v1/models` lists it.

    `parent` is the model that an adapter belongs to, None for others. `root` is the pool that `id` stands for.
    `max_model_len` is the longest context of the pool's engines in tokens, None if no engine reported it.
    """

    id: str
    root: str
    max_model_len: int | None
    parent: str | None = None


class ModelDirectory:
    """The pools by name and alias, learned from workers' heartbeats.

    A pool stays known when its workers die, so that its clients get 503 and not 404. At most `max_pools` are kept:
    those with the latest heartbeats. A pool's name outranks an alias; if two pools claim one alias, the first keeps it.
    A LoRA adapter that all engines of a worker list is a model of their pool, and its name is an alias that engines
    know as well.
    """

    def __init__(self, max_pools: int) -> None:
        self._max_pools = max_pools
        self._pools: dict[str, WorkerHeartbeat] = {}  # the last heartbeat of each, least recently heard first
        self._aliases: dict[str, str] = {}  # adapters among them
        self._adapters: dict[str, frozenset[str]] = {}  # by pool
        self._paths: dict[str, tuple[str, ...]] = {}  # of the API, by pool; none: not known yet

    def __bool__(self) -> bool:
        return bool(self._pools)

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        self._pools.pop(heartbeat.pool, None)
        self._pools[heartbeat.pool] = heartbeat
        self._learn(heartbeat)
        for alias in heartbeat.aliases:
            self._aliases.setdefault(alias, heartbeat.pool)
        if len(self._pools) > self._max_pools:
            forgotten = next(iter(self._pools))
            del self._pools[forgotten]
            self._aliases = {alias: pool for alias, pool in self._aliases.items() if pool != forgotten}
            self._adapters.pop(forgotten, None)
            self._paths.pop(forgotten, None)

    def _learn(self, heartbeat: WorkerHeartbeat) -> None:
        """Learns what the engines of a worker serve, as far as all do that have told."""
        pool = heartbeat.pool
        known = [engine for engine in heartbeat.engines if engine.paths]
        if not known:
            return
        paths, adapters = known[0].paths, frozenset(known[0].adapters)
        for engine in known[1:]:
            if engine.paths != paths:
                paths = tuple(path for path in paths if path in engine.paths)
            adapters &= frozenset(engine.adapters)
        self._paths[pool] = paths
        if adapters != self._adapters.get(pool, frozenset()):
            gone = self._adapters.get(pool, frozenset()) - adapters
            self._aliases = {a: p for a, p in self._aliases.items() if a not in gone or p != pool}
            self._adapters[pool] = adapters
            for name in sorted(adapters):
                self._aliases.setdefault(name, pool)

    def engine_name(self, model: str, pool: str) -> str:
        """Returns by which name the engines of a pool know a model or alias: an adapter's own, otherwise the pool's."""
        return model if model in self._adapters.get(pool, ()) else pool

    def paths(self, model: str) -> tuple[str, ...]:
        """Returns the paths of the API that a model's or alias's engines serve; none while this is not known."""
        return self._paths.get(self.resolve(model) or "", ())

    def resolve(self, name: str) -> str | None:
        """Returns the pool of a model name or alias, or None if no pool has that name or alias."""
        return name if name in self._pools else self._aliases.get(name)

    def cards(self) -> list[ModelCard]:
        """Returns a card for each pool, then one for each alias, both in alphabetical order."""
        adapters = {name: pool for pool, names in self._adapters.items() for name in names}
        pools = [ModelCard(name, name, self._max_model_len(name)) for name in sorted(self._pools)]
        aliases = [
            ModelCard(alias, pool, self._max_model_len(pool), pool if adapters.get(alias) == pool else None)
            for alias, pool in sorted(self._aliases.items())
            if alias not in self._pools
        ]
        return pools + aliases

    def _max_model_len(self, pool: str) -> int | None:
        return max((e.max_model_len for e in self._pools[pool].engines if e.max_model_len > 0), default=None)

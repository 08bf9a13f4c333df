"""The engines that workers have told of in heartbeats, and the connections to those that this gateway may use."""

from dataclasses import dataclass, field

import structlog

from hmas.contracts.engine_kind import UNKNOWN_KIND, EngineKind
from hmas.contracts.registry import WorkerHeartbeat
from hmas.gateway.engines.allowed import AllowedEndpoints
from hmas.gateway.engines.target import EngineTarget
from hmas.runtime.http1 import HttpExchange, HttpPool, PoolConfig, Reply

log = structlog.get_logger()

MAX_ENGINE_OWNERS = 4096  # most workers whose engines are remembered: those with the latest heartbeats


class EngineRefused(Exception):
    """An engine cannot be used by this gateway; the text says why, and what to set."""


class EngineClient:
    """The connections to one engine. Raises ValueError if `api_key` cannot be sent."""

    def __init__(self, target: EngineTarget, api_key: str, config: PoolConfig) -> None:
        self.loopback = target.loopback
        self.target, self.api_key = target, api_key
        self._heads = target.heads(api_key)
        self.pool = HttpPool(target.host, target.port, target.tls(), config)

    def send(
        self, path: str, body: tuple[bytes, bytes], request_id: str, traceparent: str, reply: Reply
    ) -> HttpExchange:
        """Sends a request, whose body comes in two parts, and returns at once; `reply` gets the answer. Raises KeyError
        for a path that is none of `API_PATHS`."""
        trace = f"traceparent: {traceparent}\r\n" if traceparent else ""
        start, rest = body  # which may be large, and is not copied
        head = b"%b%d\r\nX-Request-Id: %b\r\n%b\r\n%b" % (
            self._heads[path], len(start) + len(rest), request_id.encode(), trace.encode(), start
        )  # fmt: skip
        return self.pool.send(head, rest, reply)


@dataclass(slots=True)
class _WorkerEngines:
    """A worker's engines as its last heartbeat told them: their endpoints and kinds, by their names. `local`: the
    worker is on this host."""

    address: str
    endpoints: dict[str, str]
    local: bool
    kinds: dict[str, EngineKind] = field(default_factory=dict)


class EngineDirectory:
    """The engines by worker and name, each with one pool of connections per endpoint."""

    def __init__(self, allowed: AllowedEndpoints, config: PoolConfig | None = None) -> None:
        self._allowed, self._config = allowed, config or PoolConfig()
        self._workers: dict[str, _WorkerEngines] = {}  # least recently heard first
        self._clients: dict[str, EngineClient | str] = {}  # by endpoint; a text says why it may not be used
        self._elsewhere: set[tuple[str, str]] = set()  # engines refused for being on another host's loopback

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        """Learns the endpoints of a worker's engines. One that this gateway may not use is logged, once."""
        endpoints = {engine.engine: engine.endpoint for engine in heartbeat.engines}
        known = self._workers.pop(heartbeat.worker, None)
        if known is None or known.address != heartbeat.address:
            known = _WorkerEngines(heartbeat.address, {}, _is_loopback(heartbeat.address))
        self._workers[heartbeat.worker] = known
        known.kinds = {engine.engine: engine.engine_kind for engine in heartbeat.engines}
        if known.endpoints == endpoints and len(self._workers) <= MAX_ENGINE_OWNERS:
            return
        known.endpoints = endpoints
        if len(self._workers) > MAX_ENGINE_OWNERS:
            del self._workers[next(iter(self._workers))]
        self._update()

    def connected(self, worker: str, *, local: bool) -> None:
        """Learns whether the worker is on this host, which an open stream tells."""
        known = self._workers.get(worker)
        if known is not None:
            known.local = local or _is_loopback(known.address)

    def kind(self, worker: str, engine: str) -> EngineKind:
        """Returns the kind of an engine; unknown if no heartbeat has told of it."""
        known = self._workers.get(worker)
        return known.kinds.get(engine, UNKNOWN_KIND) if known is not None else UNKNOWN_KIND

    def find(self, worker: str, engine: str) -> EngineClient:
        """Returns the connections to an engine. Raises EngineRefused if this gateway cannot use it."""
        known = self._workers.get(worker)
        endpoint = known.endpoints.get(engine) if known is not None else None
        if known is None or endpoint is None:
            raise EngineRefused(f"no heartbeat of worker {worker} has told where its engine {engine} is")
        client = self._clients[endpoint]
        if isinstance(client, str):
            raise EngineRefused(client)
        if client.loopback and not known.local:
            reason = (
                f"engine {engine} of worker {worker} is at {endpoint}, which only the worker's own host can reach: "
                "give the engine an `advertise_url` at the worker"
            )
            if (worker, engine) not in self._elsewhere:
                self._elsewhere.add((worker, engine))
                log.error("engine_refused", endpoint=endpoint, reason=reason)
            raise EngineRefused(reason)
        return client

    async def close(self) -> None:
        """Closes all connections; requests in progress end without a word."""
        for client in self._clients.values():
            if isinstance(client, EngineClient):
                await client.pool.close()
        self._clients.clear()
        self._workers.clear()

    def _update(self) -> None:
        """Opens a pool for each new endpoint, and lets go of those that no worker tells of any more."""
        announced = {endpoint for known in self._workers.values() for endpoint in known.endpoints.values()}
        for endpoint in self._clients.keys() - announced:
            client = self._clients.pop(endpoint)
            if isinstance(client, EngineClient):
                client.pool.retire()
        for endpoint in announced - self._clients.keys():
            self._clients[endpoint] = self._open(endpoint)
        self._elsewhere = {(w, e) for w, e in self._elsewhere if w in self._workers}

    def _open(self, endpoint: str) -> EngineClient | str:
        try:
            target = EngineTarget.of(endpoint)
            key = self._allowed.key_of(target.origin)
            if key is not None:
                return EngineClient(target, key, self._config)
            reason = f"this gateway may not use an engine at {target.origin}: add it to HMAS_ENGINE_ENDPOINTS"
        except ValueError as error:
            reason = str(error)
        log.error("engine_refused", endpoint=endpoint, reason=reason)
        return reason


def _is_loopback(address: str) -> bool:
    """Returns whether a worker's address (host:port) is one of this host alone."""
    try:
        return EngineTarget.of(f"http://{address}").loopback
    except ValueError:
        return False

"""The rules of other routers, each in the gateway's place of choosing a worker of one engine.

All else is the same mesh, so that only the choice differs. A rule that other routers feed with their engines' events
knows here exactly what each engine has cached, without delay, which is more than any of them knows.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import Any

from hmas.contracts.request import Annotation, Request
from hmas.engine.core import EngineCore
from hmas.engine.core.sequence import Sequence as EngineSequence
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.pools.workers import KnownWorker
from hmas.gateway.agent.routing.prefix_index import Held
from hmas.gateway.agent.routing.route_chooser import RouteChooser
from hmas.gateway.agent.routing.route_costs import RouteCosts
from hmas.sim.workload import OfferedRequest

Cores = Callable[[str], EngineCore]  # the engine of a worker


class Rule(RouteChooser):
    """A rule that chooses by `pick`. `cores`: the engines; `offered`: the requests; `session_of`: their sessions."""

    def __init__(
        self, config: GatewayConfig, cores: Cores, offered: Mapping[str, OfferedRequest], session_of: Mapping[str, str]
    ) -> None:
        super().__init__(config)
        self.cores, self.offered, self.session_of = cores, offered, session_of

    def choose(
        self, now_s: float, workers: Sequence[KnownWorker], request: Request, annotation: Annotation | None,
        known: Held | None = None, owner: KnownWorker | None = None,
    ) -> tuple[KnownWorker, RouteCosts] | None:  # fmt: skip
        chosen = self.pick(workers, request)
        return chosen, RouteCosts([chosen], [0.0], [0.0], [0.0], [0.0], [0])

    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        raise NotImplementedError

    def cached(self, worker: KnownWorker, request: Request) -> int:
        """Returns the tokens of a prompt that the worker's engine has cached at this instant."""
        core, offered = self.cores(worker.name), self.offered[request.id]
        prompt = EngineSequence(offered.engine_request(), 0, 1, request.prompt_tokens)
        return core.kv.match(prompt).blocks * core.kv.block_size

    def session(self, request: Request) -> str:
        return self.session_of[request.id]


class RoundRobinRule(Rule):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._turns = count()

    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        return workers[next(self._turns) % len(workers)]


class LeastOutstandingRule(Rule):
    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        return min(workers, key=lambda w: (w.requests, w.last_sent))


class LeastBacklog(Rule):
    """The choice of the gateway where it knows no prompt (`Routing.choose`)."""

    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        return min(workers, key=lambda w: (w.predicted_backlog_s, w.requests, w.last_sent))


class SessionHash(Rule):
    """Rendezvous hashing of the session that the client names."""

    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        return min(workers, key=lambda w: _score(self.session(request), w.name))


class BoundedRendezvous(Rule):
    """The same with bounded loads: a worker with more than 1.25 of the mean is passed over (Mirrokni et al. 2018)."""

    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        bound = 1.25 * (sum(w.requests for w in workers) + 1) / len(workers)
        ranked = sorted(workers, key=lambda w: _score(self.session(request), w.name))
        return next((w for w in ranked if w.requests < bound), ranked[0])


class PrefixOnly(Rule):
    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        return min(workers, key=lambda w: (-self.cached(w, request), w.requests, w.last_sent))


class SglangRule(Rule):
    """SGLang's `cache_aware` policy (sgl-router/src/policies/cache_aware.rs at 026f853): where the outstanding requests
    differ by more than 64 and by more than a factor of 1.5, the shortest queue; otherwise the worker of the longest
    match if it is above a share of 0.3 of the prompt, and the one with the smallest tree if not. The thresholds are the
    defaults of its command line. Its tree forgets nothing in a run of this length; here it has the chain's nodes."""

    cache_threshold, balance_abs, balance_rel = 0.3, 64, 1.5

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._last: dict[int, str] = {}  # the worker that last had a node
        self._size: dict[str, int] = {}
        self._nodes: set[tuple[int, str]] = set()

    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        loads = [w.requests for w in workers]
        chain = request.prefix
        if max(loads) - min(loads) > self.balance_abs and max(loads) > self.balance_rel * min(loads):
            chosen = min(workers, key=lambda w: w.requests)
        else:
            known = [i for i, node in enumerate(chain.nodes) if node in self._last]
            matched = known[-1] if known else None
            if matched is not None and chain.ends[matched] / chain.ends[-1] > self.cache_threshold:
                name = self._last[chain.nodes[matched]]
            else:
                name = min(workers, key=lambda w: self._size.get(w.name, 0)).name
            chosen = next(w for w in workers if w.name == name)
        for node, end, begin in zip(chain.nodes, chain.ends, (0, *chain.ends), strict=False):
            self._last[node] = chosen.name
            if (node, chosen.name) not in self._nodes:
                self._nodes.add((node, chosen.name))
                self._size[chosen.name] = self._size.get(chosen.name, 0) + end - begin
        return chosen


class LlmdScorers(Rule):
    """llm-d's default profile: the sum of the queue scorer, 2 (the shortest waiting queue 1, the longest 0), the scorer
    of KV memory, 2 (1 less its use) and the prefix scorer, 3 (share of the prompt that is cached), of the endpoint
    picker of the Gateway API Inference Extension (pkg/epp/config/loader/defaults.go and
    pkg/epp/scheduling/framework/plugins/scorer at 02308be). The highest score wins; equal ones by last use here, at
    random there."""

    queue, memory, prefix = 2.0, 2.0, 3.0

    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        waiting = {w.name: w.queued + len(self.cores(w.name).waiting) for w in workers}
        most, least = max(waiting.values()), min(waiting.values())

        def score(worker: KnownWorker) -> float:
            kv = self.cores(worker.name).kv
            queue = 1.0 if most == least else (most - waiting[worker.name]) / (most - least)
            cached = self.cached(worker, request) / request.prompt_tokens
            return self.queue * queue + self.memory * kv.free / kv.num_blocks + self.prefix * cached

        return min(workers, key=lambda w: (-score(w), w.last_sent))


class DynamoCost(Rule):
    """Dynamo's cost (lib/kv-router/src/scheduling/selector/default.rs at 07a6c9c) with its defaults, a prefill scale
    and an overlap credit of 1 and temperature 0: blocks that are still to be prefilled, with this prompt's that are not
    cached, plus blocks that are in use with this prompt. The least wins."""

    def pick(self, workers: Sequence[KnownWorker], request: Request) -> KnownWorker:
        def cost(worker: KnownWorker) -> float:
            core = self.cores(worker.name)
            block = core.kv.block_size
            mine = request.prompt_tokens / block
            coming = sum(self._left.get(name, 0) for name in worker.pending) / block
            cached = self.cached(worker, request) / block
            used = core.kv.num_blocks - core.kv.free
            return coming + mine - cached + used + mine

        chosen = min(workers, key=lambda w: (cost(w), w.last_sent))
        self._left[request.id] = request.prompt_tokens - self.cached(chosen, request)
        return chosen

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._left: dict[str, int] = {}


class ExactIndex(Rule):
    """The mesh's own choice, with exact knowledge of the caches without delay."""

    def choose(
        self, now_s: float, workers: Sequence[KnownWorker], request: Request, annotation: Annotation | None,
        known: Held | None = None, owner: KnownWorker | None = None,
    ) -> tuple[KnownWorker, RouteCosts] | None:  # fmt: skip
        exact = {w.holder: cached for w in workers if (cached := self.cached(w, request))}
        return RouteChooser.choose(self, now_s, workers, request, annotation, (exact, []), owner)


def _score(session: str, worker: str) -> bytes:
    return blake2b(f"{session} {worker}".encode(), digest_size=8).digest()


HMAS, EXACT, LEAST_BACKLOG = "hmas", "exact index, no lag (oracle)", "least backlog"
RULES: dict[str, type[Rule] | None] = {
    "round robin": RoundRobinRule,
    "least outstanding": LeastOutstandingRule,
    LEAST_BACKLOG: LeastBacklog,
    "session hash": SessionHash,
    "bounded rendezvous": BoundedRendezvous,
    "prefix only": PrefixOnly,
    "SGLang": SglangRule,
    "llm-d": LlmdScorers,
    "Dynamo": DynamoCost,
    HMAS: None,
    EXACT: ExactIndex,
}

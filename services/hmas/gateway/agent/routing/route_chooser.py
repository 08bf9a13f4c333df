"""The choice of a worker by what a request would cost there, in seconds: the wait, the prefill of the part of its
prompt that the worker's engines do not hold, as often as there are requests whose wait it lengthens, and its share of
slower steps.

What they hold is known from what this gateway sent, from what answers reported of their cached tokens, and from what
other gateways tell that they sent. None of it is needed for a right choice; what is not known costs a cache hit.
"""

from array import array
from bisect import bisect
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import inf

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.control import MAX_CUTS
from hmas.contracts.job import PrefixChain
from hmas.contracts.request import Annotation, Request
from hmas.contracts.use import HeldPrefixes
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.pools.workers import ExpectedHit, KnownWorker
from hmas.gateway.agent.routing.prefix_index import Held, PrefixIndex
from hmas.gateway.agent.routing.route_costs import ComparedLoad, RouteCosts, compared_load
from hmas.gateway.agent.routing.speeds import PoolSpeeds
from hmas.laws.kind_costs import cost_among
from hmas.laws.slo import needed_tpot_s

RING_POINTS = 32  # of each worker
OTHERS_LOST_S = 10.0  # after which other gateways are gone, if none of them told anything


def needed_pace_s(request: Request, annotation: Annotation | None) -> float:
    """Returns the time per output token that keeps the request's SLO, in s: infinite if it generates nothing, and the
    TPOT SLO as long as its length is not predicted."""
    if request.prefill_only:
        return inf
    if annotation is None:
        return request.slo.tpot_s
    slo, tokens = annotation.tags.slo, annotation.tags.output_tokens
    if not slo.whole:
        return slo.tpot_s
    if request.max_tokens is not None:
        tokens = min(tokens, request.max_tokens)
    return needed_tpot_s(slo, tokens, cost_among(annotation.costs, ()).ttft_s)


def in_pace(
    now_s: float, workers: Sequence[KnownWorker], request: Request, annotation: Annotation | None
) -> Sequence[KnownWorker]:
    """Returns those of `workers` whose steps keep the request's SLO now. Falls back to all workers unless one of these
    works, was heard of lately, and has a backlog at most one TTFT SLO longer than the least of all."""
    needed_s = needed_pace_s(request, annotation)
    for worker in workers:
        if worker.step.value > needed_s:
            break
    else:
        return workers
    quick = [worker for worker in workers if worker.step.value <= needed_s]
    slo = request.slo if annotation is None else annotation.tags.slo
    most_s = slo.ttft_s + min(worker.backlog_s for worker in workers)
    heard_s = now_s - WORKER_LOST_AFTER_S
    if any(w.engines_up and w.heard_s >= heard_s and w.backlog_s <= most_s for w in quick):
        return quick
    return workers


class HashRing:
    """Consistent hashing: each gateway finds the same worker for the same key, and few keys move when one leaves."""

    def __init__(self, workers: Sequence[KnownWorker]) -> None:
        points = sorted((_point(w.name, i), n) for n, w in enumerate(workers) for i in range(RING_POINTS))
        self.workers = workers
        self._points = array("Q", [point for point, _ in points])
        self._owners = array("I", [owner for _, owner in points])
        bits = len(points).bit_length()  # of a key, by which the search for it starts near its place
        self._shift = 64 - bits
        self._starts = array("I", [bisect(self._points, (i << self._shift) - 1) for i in range((1 << bits) + 1)])

    def owner(self, key: int) -> KnownWorker:
        near = key >> self._shift
        at = bisect(self._points, key, self._starts[near], self._starts[near + 1])
        return self.workers[self._owners[at % len(self._owners)]]


class RouteChooser:
    """Chooses by cost, and keeps what it needs to know of the workers' caches and speeds."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config, self._neighbours, self._prior = config.chooser, config.neighbours, config.prior
        self._max_pools = config.max_pools
        self.index = PrefixIndex(config.chooser.max_nodes)
        self._by_holder: dict[int, KnownWorker] = {}
        self._by_name: dict[str, int] = {}
        self._rings: dict[str, dict[tuple[str, ...], HashRing]] = {}  # by pool, and by the workers of a class
        self._speeds: dict[str, PoolSpeeds] = {}
        self._unreported: dict[tuple[str, int], int] = {}  # tokens by worker and node, sent since the last report
        self._reported_s = -1e9
        self._others: set[str] = set()  # gateways that told something, and when the last of them did so
        self._others_told_s = -1e9

    # --- the choice

    def drawn(self, now_s: float, workers: int) -> int:
        """Returns how many of a pool's `workers` are drawn to be compared beside those that hold the prompt: all of
        few, if no other gateway chooses among them at the same time, and fewer the more do. Else all would choose the
        one that was the least loaded when they last heard of it."""
        if self._others and self._others_told_s < now_s - OTHERS_LOST_S:
            self._others.clear()
        if not self._others and workers <= self._config.max_candidates:
            return workers
        share = -(-workers // (1 + len(self._others)))
        return min(self._config.max_drawn, max(2, share))

    def candidates(
        self, workers: Sequence[KnownWorker], chain: PrefixChain, known: Held, drawn: int, owner: KnownWorker | None
    ) -> list[KnownWorker]:
        """Returns those of a pool's many `workers` among which the choice is made: the usable ones that hold most of
        the prompt, the `owner`, and so many `drawn` by its digest. `known`: who holds what."""
        chosen: dict[int, KnownWorker] = {}
        pool = workers[0].heartbeat.pool
        found, _ = known
        for holder in found:
            worker = self._by_holder[holder]
            if worker.usable and worker.heartbeat.pool == pool:
                chosen[holder] = worker
        if owner is not None:
            chosen[owner.holder] = owner
        draw, many = chain.nodes[-1], len(workers)
        for _ in range(drawn):
            draw, n = divmod(draw, many)
            worker = workers[n]
            chosen[worker.holder] = worker
        return list(chosen.values())

    def known(self, chain: PrefixChain) -> Held:
        return self.index.held(chain, self._config.max_holders)

    def choose(
        self, now_s: float, workers: Sequence[KnownWorker], request: Request, annotation: Annotation | None,
        known: Held | None = None, owner: KnownWorker | None = None,
    ) -> tuple[KnownWorker, RouteCosts] | None:  # fmt: skip
        """Returns the worker where a request costs the fewest seconds, and what it costs at each. Those whose steps are
        too slow for it are left out while others are not (`in_pace`). None: no worker has a working engine and was
        heard of lately.

        A request leaves the worker that it is at home at only for a gain above `min_gain_s` and `min_gain_share`. What
        that one holds counts more than an even backlog, as long as it has not many more requests than others. A job's
        first request is at home nowhere: else the first worker to hold what all prompts begin with would get the
        requests of all others.
        """
        workers = in_pace(now_s, workers, request, annotation)
        chain, heard_s = request.prefix, now_s - WORKER_LOST_AFTER_S
        load = compared_load([worker.appraisal or worker.appraise() for worker in workers])
        if load.heard_s < heard_s:
            workers = [worker for worker in workers if (worker.appraisal or worker.appraise()).alive_s >= heard_s]
            if not workers:
                return None
        costs = self._costs(workers, load, request, annotation, self.known(chain) if known is None else known)
        best_s = min(costs.total_s)
        best = costs.total_s.index(best_s)
        if chain.turn:
            home = costs.home(chain.ends[-1], owner)
            if home is not None and self._stays(costs, home, best_s, load):
                best = home
        return workers[best], costs

    def _costs(
        self, workers: Sequence[KnownWorker], load: ComparedLoad, request: Request, annotation: Annotation | None,
        known: Held,
    ) -> RouteCosts:  # fmt: skip
        """Returns what a request costs at each worker. A second of prefill is a second more for all that wait for the
        same engine, so it counts once more for each request that waits for an engine in the mean. The wait of a job's
        first request is all that the worker has, with the prompts that are still to be computed."""
        chain, floors, trusts, balance = request.prefix, self.index.floors, self.index.trusts, self._config.balance
        found, shared = known
        speeds, opening = self._speeds_of(workers[0].heartbeat.pool), not chain.turn
        whole_s, decode_s = speeds.times_s(request, annotation, workers[0].kinds)
        differ, token_s = speeds.differ(annotation), whole_s / max(1, chain.ends[-1])
        waiting, least_s = load.waiting, load.least_s
        totals_s, waits_s, prefills_s, loads_s, cached = [], [], [], [], []
        for worker in workers:
            each = worker.appraisal or worker.appraise()
            if differ:
                whole_s, decode_s = speeds.times_s(request, annotation, worker.kinds)
                token_s = whole_s / max(1, chain.ends[-1])
            holder = worker.holder
            tokens, prefill_s = found.get(holder, 0), whole_s
            if shared and not tokens:
                floor = floors[holder]
                for depth, epochs in shared:
                    if epochs.get(holder, 0) >= floor:
                        tokens = depth
                        break
            if tokens:
                prefill_s -= token_s * tokens * trusts[holder]
                if prefill_s < 0.0:
                    prefill_s = 0.0
            load_s = waiting * prefill_s
            if opening:
                wait_s = worker.predicted_backlog_s + worker.pending_s / (worker.engines_up or 1)
            else:
                wait_s = each.wait_s
                load_s += each.load * decode_s + balance * (each.drain_s - least_s)
            totals_s.append(wait_s + prefill_s + load_s)
            waits_s.append(wait_s)
            prefills_s.append(prefill_s)
            loads_s.append(load_s)
            cached.append(tokens)
        return RouteCosts(workers, totals_s, waits_s, prefills_s, loads_s, cached)

    def _stays(self, costs: RouteCosts, home: int, best_s: float, load: ComparedLoad) -> bool:
        """Returns whether a request stays where it is at home, although it would cost `best_s` elsewhere."""
        config, home_s, worker = self._config, costs.total_s[home], costs.workers[home]
        each = worker.appraisal or worker.appraise()
        if costs.cached_tokens[home] and each.requests <= config.bounded_load * load.requests / load.workers + 1.0:
            home_s -= config.balance * (each.drain_s - load.least_s)
        return home_s <= best_s + max(config.min_gain_s, config.min_gain_share * best_s)

    def owner(self, workers: Sequence[KnownWorker], chain: PrefixChain) -> KnownWorker | None:
        """Returns which of a pool's `workers` the job hashes to, None for a prompt without a first message."""
        if not chain.thread:
            return None
        rings = self._rings.setdefault(workers[0].heartbeat.pool, {})
        names = tuple([w.name for w in workers])
        ring = rings.get(names)
        if ring is None:
            if len(rings) > MAX_CUTS:  # a pool has at most so many classes; those of former ones go
                rings.clear()
            ring = rings[names] = HashRing(workers)
        return ring.owner(chain.thread)

    # --- what is known

    def enter(self, worker: KnownWorker) -> None:
        """Takes a new worker into account, or what an old one says of its engines' memory."""
        capacity = sum(e.kv_capacity_tokens or self._config.capacity_tokens for e in worker.heartbeat.engines)
        capacity = capacity or self._config.capacity_tokens
        if worker.name not in self._by_name:
            worker.holder = self._by_name[worker.name] = self.index.enter(capacity)
            self._by_holder[worker.holder] = worker
        self.index.holders[worker.holder].capacity = capacity

    def leave(self, worker: KnownWorker) -> None:
        self.index.leave(self._by_name.pop(worker.name))
        del self._by_holder[worker.holder]
        if worker.heartbeat.pool in self._rings:
            del self._rings[worker.heartbeat.pool]

    def emptied(self, worker: KnownWorker) -> None:
        """Forgets what a worker holds: its only engine came up again, or has dropped its cache."""
        holder = self.index.holders[worker.holder]
        holder.cut(holder.epoch)

    def sent(self, worker: KnownWorker, request: Request) -> ExpectedHit:
        """Records that a request was sent to a worker; returns what of its prompt was there before."""
        index, number, chain = self.index, worker.holder, request.prefix
        tokens, epoch = index.last_use(number, chain)
        share = min(1.0, tokens / max(1, chain.ends[-1]))
        prefill_s = self._speeds_of(worker.heartbeat.pool).prefill_s(request.prompt_tokens, worker.kinds)
        worker.expect(request.id, prefill_s * (1.0 - share * index.trusts[number]))
        added = tuple([end - begin for end, begin in zip(chain.ends, (0, *chain.ends), strict=False)])
        index.hold(number, chain.nodes, added)
        unreported = self._unreported
        for node, tokens in zip(chain.nodes, added, strict=True):
            unreported.pop((worker.name, node), None)
            unreported[worker.name, node] = tokens
        while len(unreported) > self._config.max_told_nodes:
            del unreported[next(iter(unreported))]
        return ExpectedHit(share, epoch)

    def answered(self, worker: KnownWorker, expected: ExpectedHit, cached_share: float) -> None:
        """Takes over which share of a prompt its engine reports as cached. What was expected and is not there proves
        that nothing used as long ago is there any more; where a worker has several engines, it may be on another."""
        if expected.share <= 0.0:
            return
        holder = self.index.holders[worker.holder]
        kept = min(1.0, cached_share / expected.share)
        trusts = self.index.trusts
        trusts[worker.holder] += self._config.trust_gain * (kept - trusts[worker.holder])
        if kept < 0.5 and worker.engines_up == 1 and expected.epoch >= holder.floor:
            holder.cut(expected.epoch)

    def learn(self, pool: str, request: Request, annotation: Annotation) -> None:
        if request.prefix.nodes:
            self._speeds_of(pool).learn(request, annotation)

    def _speeds_of(self, pool: str) -> PoolSpeeds:
        speeds = self._speeds.get(pool)
        if speeds is None:
            if len(self._speeds) >= self._max_pools:
                served = {worker.heartbeat.pool for worker in self._by_holder.values()}
                del self._speeds[min(self._speeds, key=served.__contains__)]  # one without a worker, if there is one
            speeds = self._speeds[pool] = PoolSpeeds(self._prior)
        return speeds

    # --- other gateways

    def report(self, now_s: float) -> tuple[HeldPrefixes, ...]:
        """Returns what was sent since the last report; nothing until `exchange_s` after it."""
        if not self._unreported or now_s - self._reported_s < self._neighbours.exchange_s:
            return ()
        self._reported_s = now_s
        unreported, self._unreported = self._unreported, {}
        by_worker: dict[str, list[tuple[int, int]]] = {}
        for (name, node), tokens in unreported.items():
            by_worker.setdefault(name, []).append((node, tokens))
        return tuple(
            HeldPrefixes(name, tuple(n for n, _ in nodes), tuple(t for _, t in nodes))
            for name, nodes in by_worker.items()
        )

    def hear(self, now_s: float, gateway: str, held: Iterable[HeldPrefixes]) -> None:
        """Takes what another gateway has sent."""
        if gateway in self._others or len(self._others) < self._neighbours.max_peers:
            self._others.add(gateway)
            self._others_told_s = now_s
        for each in held:
            number = self._by_name.get(each.worker)
            if number is not None:
                self.index.hold(number, each.nodes, each.tokens)


def _point(name: str, number: int) -> int:
    return int.from_bytes(blake2b(f"{name} {number}".encode(), digest_size=8).digest(), "big")

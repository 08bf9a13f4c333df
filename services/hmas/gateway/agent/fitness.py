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
from operator import itemgetter

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.job import PrefixChain
from hmas.contracts.request import Annotation, Request, Slo
from hmas.contracts.use import HeldPrefixes
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.prefix_index import PrefixIndex
from hmas.gateway.agent.workers import Promise, WorkerState

RING_POINTS = 32  # of each worker
OTHERS_LOST_S = 10.0  # after which other gateways are gone, if none of them told anything
SPEED_GAIN = 0.05  # weight of the newest annotation in a pool's speeds


def in_pace(now_s: float, workers: Sequence[WorkerState], request: Request, slo: Slo) -> Sequence[WorkerState]:
    """Returns those of `workers` whose steps keep the request's TPOT SLO now. All of them, if none of these works, was
    heard of lately and last reported a backlog that is at most the TTFT SLO longer than the least of all, or if the
    request is judged by its last token alone or generates nothing."""
    tpot_s = slo.tpot_s
    for worker in workers:
        if worker.step.value > tpot_s:
            break
    else:
        return workers
    if slo.whole or request.prefill_only:
        return workers
    quick = [worker for worker in workers if worker.step.value <= tpot_s]
    most_s = slo.ttft_s + min(worker.backlog_s for worker in workers)
    heard_s = now_s - WORKER_LOST_AFTER_S
    if any(w.engines_up and w.heard_s >= heard_s and w.backlog_s <= most_s for w in quick):
        return quick
    return workers


class HashRing:
    """Consistent hashing: each gateway finds the same worker for the same key, and few keys move when one leaves."""

    def __init__(self, workers: Sequence[WorkerState]) -> None:
        points = sorted((_point(w.name, i), n) for n, w in enumerate(workers) for i in range(RING_POINTS))
        self.workers = workers
        self._points = array("Q", [point for point, _ in points])
        self._owners = array("I", [owner for _, owner in points])
        bits = len(points).bit_length()  # of a key, by which the search for it starts near its place
        self._shift = 64 - bits
        self._starts = array("I", [bisect(self._points, (i << self._shift) - 1) for i in range((1 << bits) + 1)])

    def owner(self, key: int) -> WorkerState:
        near = key >> self._shift
        at = bisect(self._points, key, self._starts[near], self._starts[near + 1])
        return self.workers[self._owners[at % len(self._owners)]]


class _Speeds:
    """How fast a pool serves, learnt from the annotations of its requests."""

    def __init__(self, config: GatewayConfig) -> None:
        self.prefill_s = 1.0 / config.prior_prefill_tokens_per_s  # per token
        self.decode_s = config.prior_output_tokens * config.prior_tpot_s  # per request

    def learn(self, request: Request, annotation: Annotation) -> None:
        tokens = max(1, request.prompt_tokens)
        self.prefill_s += SPEED_GAIN * (annotation.cost.ttft_s / tokens - self.prefill_s)
        self.decode_s += SPEED_GAIN * (annotation.cost.tpot_s * annotation.tags.output_tokens - self.decode_s)


# Who holds how much of a prompt: tokens by place, and for nodes that many places hold the epochs of their last use.
Held = tuple[dict[int, int], list[tuple[int, dict[int, int]]]]
# Total seconds, the worker's place in the list, its name, the wait, the prefill, what others lose by it, and the tokens
# held.
Cost = tuple[float, int, str, float, float, float, int]
_tokens = itemgetter(6)


class Fitness:
    """Chooses by cost, and keeps what it needs to know of the workers' caches and speeds."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self.index = PrefixIndex(config.max_prefix_nodes)
        self._by_place: dict[int, WorkerState] = {}
        self._by_name: dict[str, int] = {}
        self._rings: dict[str, HashRing] = {}
        self._speeds: dict[str, _Speeds] = {}
        self._told: dict[tuple[str, int], int] = {}  # tokens by worker and node that were sent since the last report
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
        self, workers: Sequence[WorkerState], chain: PrefixChain, known: Held, drawn: int, owner: WorkerState | None
    ) -> list[WorkerState]:
        """Returns those of a pool's many `workers` among which the choice is made: the usable ones that hold most of
        the prompt, the `owner`, and so many `drawn` by its digest. `known`: who holds what."""
        chosen: dict[int, WorkerState] = {}
        pool = workers[0].heartbeat.pool
        for place in known[0]:
            worker = self._by_place[place]
            if worker.usable and worker.heartbeat.pool == pool:
                chosen[place] = worker
        if owner is not None:
            chosen[owner.place] = owner
        draw, many = chain.nodes[-1], len(workers)
        for _ in range(drawn):
            draw, n = divmod(draw, many)
            worker = workers[n]
            chosen[(worker.appraisal or worker.appraise())[6]] = worker
        return list(chosen.values())

    def known(self, chain: PrefixChain) -> Held:
        return self.index.held(chain, self._config.max_holders)

    def choose(
        self, now_s: float, workers: Sequence[WorkerState], request: Request, annotation: Annotation | None,
        known: Held | None = None, owner: WorkerState | None = None,
    ) -> tuple[WorkerState | None, list[Cost]]:  # fmt: skip
        """Returns the worker where a request costs the fewest seconds, and what it costs at each, the cheapest first.
        Those whose steps are too slow for it are left out while others are not (`in_pace`).

        The worker that holds most of the prompt, or without one the `owner`, which the job hashes to, is left only for
        a gain above `min_gain_s` and `min_gain_share`. What it holds counts more than an even backlog, as long as it
        has not many more requests than others. A job's first request is at home nowhere, and its wait is all that the
        worker has, with the prompts that are still to be computed: else the first worker to hold what all prompts begin
        with would get the requests of all others.
        A second of prefill is a second more for all that wait for the same engine, so it counts once more for each
        request that waits for an engine in the mean. None: no worker has a working engine and was heard of lately.
        """
        workers = in_pace(now_s, workers, request, request.slo if annotation is None else annotation.tags.slo)
        config, chain, floors, trusts = self._config, request.prefix, self.index.floors, self.index.trusts
        found, shared = self.known(chain) if known is None else known
        speeds, whole = self._speeds_of(workers[0].heartbeat.pool), chain.ends[-1]
        prefill_s, decode_s = request.prompt_tokens * speeds.prefill_s, speeds.decode_s
        if annotation is not None:
            prefill_s = annotation.cost.ttft_s
            decode_s = annotation.cost.tpot_s * annotation.tags.output_tokens
        saved_s, balance, heard_s = prefill_s / max(1, whole), config.balance, now_s - WORKER_LOST_AFTER_S
        opening = not chain.turn
        appraisals = [worker.appraisal or worker.appraise() for worker in workers]
        least_s, all_count, all_waiting = inf, 0, 0.0
        for each in appraisals:
            all_count += each[4]
            all_waiting += each[8]
            if each[3] < least_s:
                least_s = each[3]
        others = all_waiting / len(appraisals)
        costs: list[Cost] = []
        for n, (_, alive_s, wait_s, drain_s, _, load, place, name, _) in enumerate(appraisals):
            if alive_s < heard_s:
                continue
            tokens, missing_s = found.get(place, 0), prefill_s
            if shared and not tokens:
                floor = floors[place]
                for held, epochs in shared:
                    if epochs.get(place, 0) >= floor:
                        tokens = held
                        break
            if tokens:
                missing_s -= saved_s * tokens * trusts[place]
                if missing_s < 0.0:
                    missing_s = 0.0
            load_s = others * missing_s
            if opening:
                worker = workers[n]
                wait_s = worker.predicted_backlog_s + worker.pending_s / (worker.engines_up or 1)
            else:
                load_s += load * decode_s + balance * (drain_s - least_s)
            costs.append((wait_s + missing_s + load_s, n, name, wait_s, missing_s, load_s, tokens))
        if not costs:
            return None, []
        costs.sort()
        best_s, best = costs[0][:2]
        if opening:
            return workers[best], costs
        home: Cost | None = max(costs, key=_tokens)  # of several the first, which is the cheapest
        if home is not None and home[6] * 2 <= whole:
            home = next((cost for cost in costs if workers[cost[1]] is owner), None)
        if home is not None:
            home_s, n, tokens = home[0], home[1], home[6]
            each = appraisals[n]
            if tokens and each[4] <= config.bounded_load * all_count / len(appraisals) + 1.0:
                home_s -= balance * (each[3] - least_s)
            if home_s <= best_s + max(config.min_gain_s, config.min_gain_share * best_s):
                best = n
        return workers[best], costs

    def owner(self, workers: Sequence[WorkerState], chain: PrefixChain) -> WorkerState | None:
        """Returns which of a pool's `workers` the job hashes to, None for a prompt without a first message."""
        if not chain.thread:
            return None
        pool = workers[0].heartbeat.pool
        ring = self._rings.get(pool)
        if ring is None or (
            ring.workers is not workers and [w.name for w in ring.workers] != [w.name for w in workers]
        ):
            ring = self._rings[pool] = HashRing(workers)
        return ring.owner(chain.thread)

    # --- what is known

    def enter(self, worker: WorkerState) -> None:
        """Takes a new worker into account, or what an old one says of its engines' memory."""
        capacity = sum(e.kv_capacity_tokens or self._config.prefix_capacity_tokens for e in worker.heartbeat.engines)
        capacity = capacity or self._config.prefix_capacity_tokens
        if worker.name not in self._by_name:
            worker.place = self._by_name[worker.name] = self.index.enter(capacity)
            self._by_place[worker.place] = worker
        self.index.places[worker.place].capacity = capacity

    def leave(self, worker: WorkerState) -> None:
        self.index.leave(self._by_name.pop(worker.name))
        del self._by_place[worker.place]
        if worker.heartbeat.pool in self._rings:
            del self._rings[worker.heartbeat.pool]

    def restarted(self, worker: WorkerState) -> None:
        """Forgets what a worker holds: its only engine came up again."""
        place = self.index.places[worker.place]
        place.cut(place.epoch)

    def sent(self, worker: WorkerState, request: Request) -> Promise:
        """Records that a request was sent to a worker; returns what of its prompt was there before."""
        index, number, chain = self.index, worker.place, request.prefix
        tokens, epoch = index.last_use(number, chain)
        share = min(1.0, tokens / max(1, chain.ends[-1]))
        speed_s = self._speeds_of(worker.heartbeat.pool).prefill_s
        worker.expect(request.id, request.prompt_tokens * speed_s * (1.0 - share * index.trusts[number]))
        added = tuple([end - begin for end, begin in zip(chain.ends, (0, *chain.ends), strict=False)])
        index.hold(number, chain.nodes, added)
        told = self._told
        for node, tokens in zip(chain.nodes, added, strict=True):
            told.pop((worker.name, node), None)
            told[worker.name, node] = tokens
        while len(told) > self._config.max_told_nodes:
            del told[next(iter(told))]
        return Promise(share, epoch)

    def answered(self, worker: WorkerState, promise: Promise, cached_share: float) -> None:
        """Takes over which share of a prompt its engine reports as cached. What was promised and is not there proves
        that nothing used as long ago is there any more; where a worker has several engines, it may be on another."""
        if promise.share <= 0.0:
            return
        place = self.index.places[worker.place]
        kept = min(1.0, cached_share / promise.share)
        trusts = self.index.trusts
        trusts[worker.place] += self._config.trust_gain * (kept - trusts[worker.place])
        if kept < 0.5 and worker.engines_up == 1 and promise.epoch >= place.floor:
            place.cut(promise.epoch)

    def learn(self, pool: str, request: Request, annotation: Annotation) -> None:
        if request.prefix.nodes:
            self._speeds_of(pool).learn(request, annotation)

    def _speeds_of(self, pool: str) -> _Speeds:
        speeds = self._speeds.get(pool)
        if speeds is None:
            if len(self._speeds) >= self._config.max_pools:
                self._speeds.clear()
            speeds = self._speeds[pool] = _Speeds(self._config)
        return speeds

    # --- other gateways

    def report(self, now_s: float) -> tuple[HeldPrefixes, ...]:
        """Returns what was sent since the last report; nothing until `exchange_s` after it."""
        if not self._told or now_s - self._reported_s < self._config.exchange_s:
            return ()
        self._reported_s = now_s
        told, self._told = self._told, {}
        by_worker: dict[str, list[tuple[int, int]]] = {}
        for (name, node), tokens in told.items():
            by_worker.setdefault(name, []).append((node, tokens))
        return tuple(
            HeldPrefixes(name, tuple(n for n, _ in nodes), tuple(t for _, t in nodes))
            for name, nodes in by_worker.items()
        )

    def hear(self, now_s: float, gateway: str, held: Iterable[HeldPrefixes]) -> None:
        """Takes what another gateway has sent."""
        if gateway in self._others or len(self._others) < self._config.max_peers:
            self._others.add(gateway)
            self._others_told_s = now_s
        for each in held:
            number = self._by_name.get(each.worker)
            if number is not None:
                self.index.hold(number, each.nodes, each.tokens)


def _point(name: str, number: int) -> int:
    return int.from_bytes(blake2b(f"{name} {number}".encode(), digest_size=8).digest(), "big")

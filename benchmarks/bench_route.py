"""Measures the choice of a worker by prefix against the choice by backlog alone, and the index that it looks into."""

from collections.abc import Callable
from statistics import median, quantiles
from time import perf_counter

from hmas.contracts.job import PrefixChain
from hmas.contracts.registry import WIRE_VERSION, EngineInfo, WorkerHeartbeat
from hmas.contracts.request import Request, Slo
from hmas.contracts.use import HeldPrefixes
from hmas.gateway.agent.config import GatewayConfig, RouteChoiceConfig
from hmas.gateway.agent.pools.workers import KnownWorker
from hmas.gateway.agent.routing.choice import cheapest, least_loaded
from hmas.gateway.agent.routing.prefix_index import PrefixIndex
from hmas.gateway.agent.routing.routing import Router

NODES = 2_000_000
FEW, MANY, BASE = 64, 1_024, 16
CHAIN = 24  # nodes of a prompt, of which the first two are those of all prompts
HELD = 20  # of these an earlier prompt had
REQUESTS, TURN = 2_000, 100

Choice = Callable[[Request], KnownWorker | None]


def rows() -> list[dict[str, object]]:
    base, few, many = _times(_router(BASE), _filled(FEW), _filled(MANY))
    before = median(base)
    ratio, growth, worst = median(many) / before, median(many) / median(few), quantiles(many, n=100)[98]
    index = PrefixIndex(NODES)
    return [
        {"name": f"choice by backlog among {BASE} workers", "value": 1e6 * before, "unit": "us", "goal": None,
         "met": None},
        {"name": f"choice by prefix among {MANY} workers with {NODES / 1e6:g} M nodes, over that", "value": ratio,
         "unit": "x", "goal": "<= 4", "met": ratio <= 4},
        {"name": f"choice by prefix among {MANY} workers, p99", "value": 1e6 * worst, "unit": "us", "goal": None,
         "met": None},
        {"name": f"choice by prefix among {MANY} workers over among {FEW}", "value": growth, "unit": "x",
         "goal": "<= 1.5", "met": growth <= 1.5},
        {"name": "memory of the index of prefixes", "value": index.bytes / NODES, "unit": "B a node", "goal": "<= 40",
         "met": index.bytes / NODES <= 40},
    ]  # fmt: skip


def _router(workers: int) -> Router:
    router = Router(GatewayConfig(gateway="g", chooser=RouteChoiceConfig(max_nodes=NODES)))
    for i in range(workers):
        router.connect(f"w{i}")
        router.hear(0.0, _heartbeat(f"w{i}", i))
    return router


def _filled(workers: int) -> Router:
    """Returns a router with an index that is full, in which the beginnings of all requests are."""
    router = _router(workers)
    usable, chooser = router.usable("m"), router.chooser
    for i in range(NODES // CHAIN):
        nodes = tuple(_digest(i, 1, n) for n in range(CHAIN))
        chooser.hear(0.0, "g1", [HeldPrefixes(usable[i % workers].name, nodes, (64,) * CHAIN)])
    for i in range(REQUESTS):
        chooser.sent(usable[i % workers], _request(i, HELD))
    return router


def _times(base: Router, *filled: Router) -> list[list[float]]:
    """Returns the times of choices by backlog and, in each filled router, by prefix. They take turns of `TURN`
    requests, which are then sent to the workers that were chosen."""
    of_base = base.usable("m")
    choices: list[tuple[Router, Choice]] = [(base, lambda _: least_loaded(0.5, of_base))]
    choices += [(router, _by_prefix(router)) for router in filled]
    found: list[list[float]] = [[] for _ in choices]
    for turn in range(0, REQUESTS, TURN):
        requests = [_request(i, CHAIN) for i in range(turn, turn + TURN)]
        for (router, choose), times in zip(choices, found, strict=True):
            chosen = []
            for request in requests:
                start = perf_counter()
                worker = choose(request)
                times.append(perf_counter() - start)
                chosen.append(worker)
            for request, worker in zip(requests, chosen, strict=True):
                assert worker is not None
                router.send(0.5, worker, request, None)
    return [times[TURN:] for times in found]


def _by_prefix(router: Router) -> Choice:
    usable = router.usable("m")

    def choose(request: Request) -> KnownWorker | None:
        found = cheapest(router.chooser, 0.5, usable, request, None, ())
        return found[0] if found is not None else None

    return choose


def _digest(*parts: int) -> int:
    value = 0x9E3779B97F4A7C15
    for part in parts:
        value = ((value ^ part) * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & (2**64 - 1)
        value ^= value >> 29
    return value


def _request(number: int, nodes: int) -> Request:
    own = [_digest(0, 0, n) for n in range(2)] + [_digest(number, 2, n) for n in range(2, nodes)]
    chain = PrefixChain(tuple(own), tuple(256 * (n + 1) for n in range(nodes)), True, _digest(number, 3), 1)
    return Request(
        id=str(number), model="m", tenant="t", flow="", prompt_tokens=256 * nodes, max_tokens=512, stream=True,
        slo=Slo(2.0, 0.1), slo_stated=True, priority=0, weight=1.0, importance=0.75, arrival_s=0.0, prefix=chain,
    )  # fmt: skip


def _heartbeat(name: str, number: int) -> WorkerHeartbeat:
    engine = EngineInfo(
        engine=f"e-{name}", up=True, dialect="vllm", hardware="", max_model_len=32_768, kv_capacity_tokens=1 << 20,
        block_size=16, max_num_seqs=256,
    )  # fmt: skip
    return WorkerHeartbeat(
        worker=name, incarnation="i", address="", wire_version=WIRE_VERSION, pool="m", aliases=(), engines=(engine,),
        queued=number % 3, queued_tokens=1_000, running=20 + number % 7, max_queued=1_000, max_queued_tokens=10**8,
        backlog_s=1.0 + number % 5, draining=False,
    )  # fmt: skip

"""Sends a million forged ids through all that remembers jobs, links and prefixes, in the sizes that ship."""

import gc
import os
from pathlib import Path
from resource import getpagesize
from time import perf_counter

from hmas.contracts.job import PrefixChain, StageArrived
from hmas.contracts.registry import WIRE_VERSION, EngineInfo, WorkerHeartbeat
from hmas.contracts.request import Request, Slo
from hmas.gateway.agent.admission.promises import Promises
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.jobs.job_outlook import JobOutlook
from hmas.gateway.agent.jobs.linking import JobLinker
from hmas.gateway.agent.routing.routing import Router
from hmas.gateway.jobs import MAX_JOBS, JobBook
from hmas.worker.agent.config import PrefixCacheConfig
from hmas.worker.agent.engines.prefix_cache import PrefixCache
from hmas.worker.agent.order.job_shares import JobShares, JobSharesConfig

IDS = int(os.environ.get("IDS", "1_000_000"))
WORKERS = 8
MORE_MB = 32.0  # by which the second half of the ids may make the process grow
CAPACITY = 10**9  # tokens of an engine, so that the bounds on entries are what counts


class Tables:
    def __init__(self) -> None:
        self.config = GatewayConfig(gateway="g")
        self.linker, self.told = JobLinker(self.config.linking), JobLinker(self.config.linking)
        self.job_outlook = JobOutlook(self.config.job_outlook, prefill_tokens_per_s=5e3, tpot_s=0.02)
        self.book, self.promises = JobBook(), Promises(self.config)
        self.shares, self.cache = JobShares(JobSharesConfig()), PrefixCache(PrefixCacheConfig())
        self.router = Router(self.config)
        for i in range(WORKERS):
            self.router.connect(f"w{i}")
            self.router.hear(0.0, _heartbeat(f"w{i}"))
        self.usable = self.router.usable("m")

    def send(self, number: int) -> None:
        """Half of the jobs are named by their client, half of the calls never end, each has a tenant of its own, and
        some prompts are sent to all workers."""
        now_s, tenant = number * 1e-4, f"t{number}"
        first, last, thread = (_digest(4 * number + i) for i in (1, 2, 3))
        chain = PrefixChain((first, last), (9, 99), True, thread, 1)
        request = Request(
            id=f"r{number}", model="m", tenant=tenant, flow="", prompt_tokens=99, max_tokens=64, stream=True,
            slo=Slo(1.0, 0.1), slo_stated=False, priority=0, weight=1.0, importance=0.75, arrival_s=now_s, prefix=chain,
        )  # fmt: skip
        declared = f"job-{number}" if number % 2 else ""
        event = StageArrived(request_id=request.id, tenant=tenant, chain=chain, declared=declared)
        (linked,) = self.linker.step(now_s, event)
        self.job_outlook.arrived(request, linked.stage, 30.0)
        self.book.began(now_s, request, linked.stage, 30.0)
        self.shares.served(now_s, tenant, 1.0, 0.01)
        self.promises.make(now_s, request.id, 1.0)
        for worker in self.usable if number % 64 == 0 else self.usable[:1]:
            self.router.chooser.sent(worker, request)
            worker.computed(request.id)
        self.cache.hold(chain, CAPACITY)
        self.cache.release(chain)
        if number % 4 < 2:
            self.cache.ended(chain, 99, 9, CAPACITY)
            self.job_outlook.settled(now_s, request.id, 9)
            self.book.ended(now_s, linked.stage.job, 0.1, True, 9, 0)
        if number % 2_500 == 0:
            self.job_outlook.tick(now_s)
            self.book.over(now_s)
            self.shares.refresh(now_s, 1.0, True)
            self.promises.report(now_s)
            self.told.hear(now_s, self.linker.report(now_s))
            self.router.chooser.hear(now_s, "g2", self.router.chooser.report(now_s))

    def sizes(self) -> list[tuple[str, int, int]]:
        """Returns the tables with their entries and the most that they may have."""
        config, index = self.config, self.router.chooser.index
        links = config.linking.max_jobs + config.linking.max_ends
        return [
            ("jobs and ends of prompts that are linked", len(self.linker), links),
            ("the same, as told by another gateway", len(self.told), links),
            ("jobs and open stages of the outlook", len(self.job_outlook), 2 * config.job_outlook.max_jobs),
            ("jobs that are shown", len(self.book), MAX_JOBS),
            ("promises to refused requests", len(self.promises), config.promises.max_promises),
            ("beginnings of prompts with one of many workers", len(index), config.chooser.max_nodes),
            ("tenants' shares at a worker", len(self.shares), JobSharesConfig().max_tenants),
            ("beginnings of prompts at an engine", len(self.cache), PrefixCacheConfig().max_nodes),
        ]


def rows() -> list[dict[str, object]]:
    tables = Tables()
    start = perf_counter()
    for number in range(IDS // 2):
        tables.send(number)
    before = _resident_mb()
    for number in range(IDS // 2, IDS):
        tables.send(number)
    each_s, more = (perf_counter() - start) / IDS, _resident_mb() - before
    after = f"entries after {IDS / 1e6:g} M forged ids"
    found = [_row(f"{after}: {name}", entries, "", most) for name, entries, most in tables.sizes()]
    found.append(_row("memory of the process then", _resident_mb(), "MB", None))
    found.append(_row("what the second half of the ids added to it", max(more, 0.001), "MB", MORE_MB))
    found.append(_row("all of these tables for an id", 1e6 * each_s, "us", None))
    return found


def _row(name: str, value: float, unit: str, most: float | None) -> dict[str, object]:
    return {"name": name, "value": value, "unit": unit, "goal": None if most is None else f"<= {most:,g}",
            "met": None if most is None else value <= most}  # fmt: skip


def _resident_mb() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize() / 1e6


def _digest(number: int) -> int:
    value = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    return (value ^ value >> 29) * 0xBF58476D1CE4E5B9 % 2**64 | 1


def _heartbeat(name: str) -> WorkerHeartbeat:
    engine = EngineInfo(
        engine=f"e-{name}", up=True, dialect="vllm", hardware="", max_model_len=32_768, kv_capacity_tokens=CAPACITY,
        block_size=16, max_num_seqs=256,
    )  # fmt: skip
    return WorkerHeartbeat(
        worker=name, incarnation="i", address="", wire_version=WIRE_VERSION, pool="m", aliases=(), engines=(engine,),
        queued=0, queued_tokens=0, running=0, max_queued=0, max_queued_tokens=0, backlog_s=0.0, draining=False,
    )  # fmt: skip

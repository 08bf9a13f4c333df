"""Forged ids fill no table: what a gateway and a worker's order remember of jobs is bounded, in entries and memory."""

import gc
import tracemalloc

from hmas.contracts.job import PrefixChain, StageArrived
from hmas.contracts.request import Slo
from hmas.gateway.agent.config import JobOutlookConfig, LinkingConfig
from hmas.gateway.agent.jobs.job_outlook import JobOutlook
from hmas.gateway.agent.jobs.linking import JobLinker
from hmas.gateway.jobs import MAX_JOBS, JobBook
from hmas.laws.job_profiles import JobProfilesConfig
from hmas.worker.agent.order.job_shares import JobShares, JobSharesConfig
from tests.builders.requests import client_request

BOUND, IDS = 500, 15_000
MORE_BYTES = 400_000  # by which the last two thirds of the ids may make it grow


class Everything:
    """All that remembers jobs, in small sizes; the shipped sizes differ by a factor alone."""

    def __init__(self) -> None:
        self.linker = JobLinker(LinkingConfig(max_jobs=BOUND, max_ends=BOUND, max_told=BOUND))
        self.peer = JobLinker(LinkingConfig(max_jobs=BOUND, max_ends=BOUND, max_told=BOUND))
        self.job_outlook = JobOutlook(
            JobOutlookConfig(max_jobs=BOUND, profiles=JobProfilesConfig(max_states=BOUND)),
            prefill_tokens_per_s=5e3,
            tpot_s=0.02,
        )
        self.book = JobBook()
        self.shares = JobShares(JobSharesConfig(max_tenants=BOUND))

    def send(self, number: int) -> None:
        """Half of the jobs are named by their client, half of the calls never end, and each has a tenant of its own."""
        now_s, tenant = number * 1e-3, f"t{number}"
        chain = PrefixChain((number * 4 + 1, number * 4 + 2), (9, 99), True, number * 4 + 3, 1)
        request = client_request(
            f"r{number}", tenant=tenant, prompt_tokens=99, max_tokens=64, slo=Slo(1.0, 0.1), slo_stated=False,
            arrival_s=now_s, prefix=chain,
        )  # fmt: skip
        declared = f"job-{number}" if number % 2 else ""
        event = StageArrived(request_id=request.id, tenant=tenant, chain=chain, declared=declared)
        (linked,) = self.linker.step(now_s, event)
        self.job_outlook.arrived(request, linked.stage, 30.0)
        self.book.began(now_s, request, linked.stage, 30.0)
        self.shares.served(now_s, tenant, 1.0, 0.01)
        if number % 4 < 2:
            self.job_outlook.settled(now_s, request.id, 9)
            self.book.ended(now_s, linked.stage.job, 0.1, True, 9, 0)
        if number % 500 == 0:
            self.job_outlook.tick(now_s)
            self.book.over(now_s)
            self.shares.refresh(now_s, 1.0, True)
            self.peer.hear(now_s, self.linker.report(now_s))


def test_a_flood_of_ids_fills_no_table() -> None:
    everything = Everything()
    tracemalloc.start()
    try:
        for number in range(IDS // 3):
            everything.send(number)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(IDS // 3, IDS):
            everything.send(number)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(everything.linker) <= 2 * BOUND
    assert len(everything.peer) <= 2 * BOUND
    assert len(everything.job_outlook) <= 2 * BOUND
    assert len(everything.book) <= MAX_JOBS
    assert len(everything.shares) <= BOUND
    assert after - before < MORE_BYTES

"""Jobs that clients forge: another tenant's names and ids, a million ids, and budgets of nothing and of years."""

import random

import pytest

from hmas.contracts.job import LinkedBy, PrefixChain, Stage, StageArrived
from hmas.contracts.request import Slo
from hmas.gateway.agent.config import JobOutlookConfig
from hmas.gateway.agent.jobs.job_outlook import JobOutlook
from hmas.gateway.agent.jobs.linking import JobLinker
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.jobs import MAX_JOBS, JobBook
from hmas.gateway.tenants.terms import MAX_TTLT_MS, Tenant, declared_job, terms_of
from hmas.laws.prefix_chain import chain_of_messages, tenant_key
from tests.builders.requests import client_request
from tests.gateway.test_many_jobs import BOUND, Everything

MILLION = 1_000_000


def chain_of(tenant: str, *texts: str) -> PrefixChain:
    messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    return chain_of_messages(tenant_key(tenant), b"m", messages)


class Calls:
    """Two tenants' calls at one gateway, with its book of jobs."""

    def __init__(self) -> None:
        self.linker, self.book, self.number = JobLinker(), JobBook(), 0

    def call(self, tenant: str, chain: PrefixChain, declared: str = "") -> Stage:
        self.number += 1
        request = client_request(f"r{self.number}", tenant=tenant, prefix=chain)
        event = StageArrived(request_id=request.id, tenant=tenant, chain=chain, declared=declared)
        (linked,) = self.linker.step(float(self.number), event)
        self.book.began(float(self.number), request, linked.stage)
        return linked.stage


def test_whatever_a_tenant_forges_he_reaches_no_job_of_another() -> None:
    """He knows the other's names, ids and prompts, and states them as his own."""
    calls, dice = Calls(), random.Random(1)
    known: list[tuple[str, list[str]]] = []
    for number in range(300):
        texts = [f"task {dice.randrange(9)}", *(f"turn {turn}" for turn in range(dice.randrange(4)))]
        declared = f"job-{dice.randrange(9)}" if number % 2 else ""
        known += [(declared, texts), (calls.call("acme", chain_of("acme", *texts), declared).job, texts)]
    theirs = {row.job: (row.calls, row.tenant) for row in calls.book.report(0.0, "g").jobs}
    for declared, texts in known:
        for name in (declared, ""):
            stage = calls.call("globex", chain_of("globex", *texts), name)
            assert stage.job not in theirs
            assert not stage.parent or int(stage.parent[1:]) > 300
    told = {row.job: (row.calls, row.tenant) for row in calls.book.report(0.0, "g").jobs}
    assert {job: told[job] for job in theirs} == theirs  # nothing was counted with them either


def test_stages_never_make_a_circle() -> None:
    """No client can state a parent: a stage's is always one that came before it, whatever the prompts and names."""
    calls, dice, parents = Calls(), random.Random(2), dict[str, str]()
    for _ in range(3000):
        texts = [str(dice.randrange(3)) for _ in range(dice.randrange(1, 6))]
        declared = dice.choice(["", "", "a", "b", "r1", f"r{calls.number}"])
        stage = calls.call("acme", chain_of("acme", *texts), declared)
        parents[f"r{calls.number}"] = stage.parent
        assert (stage.index == 0) == (stage.linked is LinkedBy.NEW or not stage.parent)
    assert all(not parent or int(parent[1:]) < int(name[1:]) for name, parent in parents.items())


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_million_ids_fill_no_table() -> None:
    everything = Everything()
    for number in range(MILLION):
        everything.send(number)
    assert len(everything.linker) <= 2 * BOUND
    assert len(everything.peer) <= 2 * BOUND
    assert len(everything.job_outlook) <= 2 * BOUND
    assert len(everything.book) <= MAX_JOBS
    assert len(everything.shares) <= BOUND


def test_one_job_of_very_many_calls_is_no_larger_than_others() -> None:
    outlook = JobOutlook(JobOutlookConfig(), prefill_tokens_per_s=5e3, tpot_s=0.02)
    for number in range(20_000):
        request = client_request(f"r{number}", arrival_s=number * 1e-3, prefix=chain_of("acme", "a task"))
        outlook.arrived(request, Stage(job="job", index=number, parent="", linked=LinkedBy.DECLARED), 30.0)
        outlook.settled(number * 1e-3, request.id, 9)
    outlook.tick(1e6)
    assert len(outlook) == 0
    assert len(outlook.profiles) <= 2 * JobOutlookConfig().max_stages + 1


@pytest.mark.parametrize("budget_s", [1e-6, 0.001, MAX_TTLT_MS / 1000])
def test_a_budget_of_next_to_nothing_or_of_days_makes_an_slo(budget_s: float) -> None:
    outlook = JobOutlook(JobOutlookConfig(), prefill_tokens_per_s=5e3, tpot_s=0.02)
    for number in range(50):
        request = client_request(f"r{number}", arrival_s=float(number), slo=Slo(1.0, 0.1), slo_stated=False)
        told = outlook.arrived(request, Stage(job="job", index=number, parent="", linked=LinkedBy.DECLARED), budget_s)
        assert told.slo.ttlt_s is not None
        assert 0.001 <= told.slo.ttlt_s <= max(0.001, budget_s)
        outlook.settled(number + 0.5, request.id, 9)


@pytest.mark.parametrize("value", [b"0", b"-1", b"1e12", b"1e400", b"nan", b"inf", b"1_000", b"0x10", b"9" * 400, b""])
def test_a_budget_out_of_its_range_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidRequest, match="x-slo-job-ms"):
        terms_of({b"x-slo-job-ms": value}, Tenant(name="acme"), None, stream=True)


@pytest.mark.parametrize("value", [b"<script>", b"a\nb", b"\x1b[2J", b"x" * 129, b"\xff", b"../up", b""])
def test_a_name_that_is_none_names_no_job(value: bytes) -> None:
    assert declared_job({b"x-hmas-job": value}) == ""

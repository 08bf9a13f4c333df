"""Measures linking: whether the gateway finds the job of each request of recorded workflows that run beside one
another, without a word from the client.

A link joins a request to the one before it in its job. Precision and recall are over links.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random

from experiments.pages.goal import Goal
from experiments.study import Finished, Options, Study
from hmas.contracts.job import PrefixChain, StageArrived
from hmas.gateway.agent.jobs.linking import JobLinker
from hmas.laws.prefix_chain import chain_of_messages, tenant_key
from hmas_loadgen.workflows.recorded import BFCL, FILES, TAU_BENCH, WHO_AND_WHEN, Workflow, read_workflows

SEED = 1  # of the order in which requests come
REPEATS = 374
GATEWAYS = 4
TICK_S = 0.1  # between two instants at which a gateway may tell others
TENANT = "acme"
JUDGED = ("jobs start", f"with repeats, {GATEWAYS} gateways, which tell")  # how the cases begin that have goals
LEAST_F1 = {TAU_BENCH: 0.99, BFCL: 0.99, WHO_AND_WHEN: 0.9}
NAMED = "with repeats, the client names the job"
JOBS_PER_S, GAP_MEDIAN_S, GAP_SIGMA = 1.0, 10.0, 1.0


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it was sent; `before` is the request before it in its job, empty for the first."""

    id: str
    job: str
    corpus: str
    at_s: float
    before: str
    chain: PrefixChain


@dataclass(frozen=True, slots=True)
class LinkRow:
    """The links of one corpus in one case. `equal_right`: those that are right if requests with equal prompts count as
    one, because no reader of requests could tell them apart."""

    case: str
    corpus: str
    requests: int
    links: int
    found: int
    right: int
    equal_right: int

    @property
    def f1(self) -> float:
        return _f1(self.right, self.found, self.links)

    @property
    def equal_f1(self) -> float:
        return _f1(self.equal_right, self.found, self.links)


def _f1(right: int, found: int, links: int) -> float:
    return 2 * right / max(1, found + links)


def measure(data: Path, seed: int = SEED) -> list[LinkRow]:
    """Returns the rows of all cases. `data` is the folder with `agentic/`."""
    originals = read_workflows(data)
    repeated = _repeats(originals, Random(f"{seed} repeats"))
    found: list[LinkRow] = []
    for name, jobs, order in (
        ("alone: each job after the other", originals, _in_a_row),
        ("jobs start once a second", originals, _timed),
        ("jobs start once a second, with repeats", [*originals, *repeated], _timed),
        ("all at once, in any order", originals, _at_once),
    ):
        sent = order(jobs, Random(f"{seed} order"))
        found += _rows(name, sent, _one_gateway(sent))
    sent = _timed([*originals, *repeated], Random(f"{seed} order"))
    name = f"with repeats, {GATEWAYS} gateways"
    found += _rows(f"{name}, by ids alone", sent, _by_ids(sent, GATEWAYS, Random(f"{seed} balancer")))
    parents = _by_ids(sent, GATEWAYS, Random(f"{seed} balancer"), told=True)
    found += _rows(f"{name}, which tell one another once a second", sent, parents)
    found += _rows(NAMED, sent, _one_gateway(sent, declared=True))
    return found


def crossings(data: Path, seed: int = SEED) -> tuple[int, int]:
    """Returns how many of the requests of two tenants that send the same were linked, and how many across tenants."""
    jobs = read_workflows(data, "tau-bench")
    tenants = ("acme", "globex")
    arrived = [
        (sent.at_s, tenant, StageArrived(request_id=f"{tenant} {sent.id}", tenant=tenant, chain=sent.chain))
        for tenant in tenants
        for sent in _timed(jobs, Random(f"{seed} order"), tenant)
    ]
    linker, links, crossed = JobLinker(), 0, 0
    for at_s, tenant, event in sorted(arrived, key=lambda each: each[0]):
        (linked,) = linker.step(at_s, event)
        links += bool(linked.stage.parent)
        crossed += bool(linked.stage.parent) and not linked.stage.parent.startswith(f"{tenant} ")
    return links, crossed


def _repeats(originals: Sequence[Workflow], random: Random) -> list[Workflow]:
    """Returns jobs that send what others send but for a word at the end of their first message of a user."""
    repeats = []
    for number, original in enumerate(random.choices(originals, k=REPEATS)):
        calls = []
        for call in original.calls:
            first = next(i for i, message in enumerate(call.messages) if message["role"] == "user")
            said = call.messages[first]
            said = said | {"content": f"{said['content']} ({number})"}
            messages = (*call.messages[:first], said, *call.messages[first + 1 :])
            calls.append(type(call)(messages, call.tools, call.output_tokens))
        repeats.append(Workflow(f"{original.id} again {number}", original.corpus, tuple(calls)))
    return repeats


Instants = Iterable[tuple[float, Workflow, int]]


def _in_a_row(jobs: Sequence[Workflow], random: Random) -> list[Sent]:
    return _sent((float(n * 10_000 + i), job, i) for n, job in enumerate(jobs) for i in range(len(job.calls)))


def _timed(jobs: Sequence[Workflow], random: Random, tenant: str = TENANT) -> list[Sent]:
    """Jobs start at random, once in 1 / `JOBS_PER_S` on average; the gaps between requests are log-normal."""
    instants, start_s = [], 0.0
    for job in random.sample(jobs, len(jobs)):
        start_s += random.expovariate(JOBS_PER_S)
        at_s = start_s
        for i in range(len(job.calls)):
            instants.append((at_s, job, i))
            at_s += GAP_MEDIAN_S * random.lognormvariate(0.0, GAP_SIGMA)
    return _sent(instants, tenant)


def _at_once(jobs: Sequence[Workflow], random: Random) -> list[Sent]:
    """All jobs are open from the start; the next request is anyone's with equal chance for each request."""
    turns = [job for job in jobs for _ in job.calls]
    random.shuffle(turns)
    next_call: dict[str, int] = {}
    instants = []
    for turn, job in enumerate(turns):
        i = next_call.get(job.id, 0)
        next_call[job.id] = i + 1
        instants.append((turn * 0.01, job, i))
    return _sent(instants)


def _sent(instants: Instants, tenant: str = TENANT) -> list[Sent]:
    key = tenant_key(tenant)
    return [
        Sent(
            id=f"{job.id} {i}",
            job=job.id,
            corpus=job.corpus,
            at_s=at_s,
            before=f"{job.id} {i - 1}" if i else "",
            chain=chain_of_messages(key, " ".join(job.calls[i].tools).encode(), job.calls[i].messages),
        )
        for at_s, job, i in sorted(instants, key=lambda each: each[0])
    ]


def _arrived(sent: Sent, *, declared: bool = False) -> StageArrived:
    return StageArrived(request_id=sent.id, tenant=TENANT, chain=sent.chain, declared=sent.job if declared else "")


def _one_gateway(sent: Sequence[Sent], *, declared: bool = False) -> dict[str, str]:
    """Returns the request that each one was linked to."""
    linker = JobLinker()
    return {
        linked.request_id: linked.stage.parent
        for each in sent
        for linked in linker.step(each.at_s, _arrived(each, declared=declared))
    }


def _by_ids(sent: Sequence[Sent], gateways: int, random: Random, *, told: bool = False) -> dict[str, str]:
    """Each request comes to a gateway at random. `told`: the gateways tell one another the last stages of jobs, which
    each does once a second. A request is linked to the last one, at any gateway, that got the same job's id."""
    linkers = [JobLinker() for _ in range(gateways)]
    last: dict[str, str] = {}
    parents = {}
    ticks = count()
    tick_s = next(ticks) * TICK_S
    for each in sent:
        while told and tick_s < each.at_s:
            for linker in linkers:
                stages = linker.report(tick_s)
                for other in linkers:
                    if other is not linker:
                        other.hear(tick_s, stages)
            tick_s = next(ticks) * TICK_S
        (linked,) = random.choice(linkers).step(each.at_s, _arrived(each))
        parents[each.id] = last.get(linked.stage.job, "")
        last[linked.stage.job] = each.id
    return parents


def _rows(case: str, sent: Sequence[Sent], parents: dict[str, str]) -> list[LinkRow]:
    prompts = {each.id: each.chain.nodes[-1] for each in sent}
    rows = []
    for corpus in FILES:
        some = [each for each in sent if each.corpus == corpus]
        found = [each for each in some if parents[each.id]]
        rows.append(
            LinkRow(
                case=case,
                corpus=corpus,
                requests=len(some),
                links=sum(bool(each.before) for each in some),
                found=len(found),
                right=sum(parents[each.id] == each.before for each in found),
                equal_right=sum(bool(e.before) and prompts[parents[e.id]] == prompts[e.before] for e in found),
            )
        )
    return rows


def goals(found: Sequence[LinkRow]) -> list[Goal]:
    """Returns what was aimed at, with the F1 that came."""
    least = [(row, LEAST_F1[row.corpus]) for row in found if row.case.startswith(JUDGED)]
    least += [(row, 1.0) for row in found if row.case == NAMED]
    return [
        Goal(f"{row.corpus}, {row.case}: F1 at least {goal:g}", f"{row.f1:.4f}", row.f1 >= goal) for row, goal in least
    ]


def page_of(rows: Sequence[LinkRow], options: Options, found: Finished) -> dict[str, object]:
    jobs, (links, crossed) = read_workflows(options.agentic()), crossings(options.agentic())
    first = [next(m["content"] for m in j.calls[0].messages if m["role"] == "user") for j in jobs if j.corpus == BFCL]
    return {
        "jobs": len(jobs), "repeats": REPEATS, "gateways": GATEWAYS, "seed": SEED,
        "cells": [(r.case, r.corpus, r.requests, r.links, r.found, f"{r.f1:.4f}", f"{r.equal_f1:.4f}") for r in rows],
        "bfcl": len(first), "twins": sum(first.count(message) > 1 for message in first),
        "tau": sum(job.corpus == TAU_BENCH for job in jobs), "links": links, "crossed": crossed,
    }  # fmt: skip


def files_of(rows: Sequence[LinkRow], options: Options, found: Finished) -> dict[str, object]:
    links, crossed = crossings(options.agentic())
    plain = [asdict(row) | {"f1": row.f1, "equal_f1": row.equal_f1} for row in rows]
    return {"jobs-linking.json": {"seed": SEED, "rows": plain, "tenants": {"links": links, "crossed": crossed}}}


STUDY: Study[None, LinkRow] = Study(
    name="jobs-linking",
    about="Measures whether the gateway finds the job of each request of recorded workflows. It takes half a minute "
    "and needs --data with agentic/.",
    takes=("out", "data"),
    rows=lambda options, found: measure(options.agentic()),
    goals=goals,
    values=page_of,
    also=files_of,
)

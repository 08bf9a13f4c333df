"""Jobs of the applications of Maestro's Table I whose calls go to several models.

On the card of five models each role has its model, and a call of the smallest one, for the intent, comes before
an interactive job. On the card of twelve each job stays with one of them, drawn evenly. A job's budget is a multiple
of the median time that jobs of its application take alone, without a move; one that could not keep it beside others is
drawn anew.
"""

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from random import Random
from statistics import median

from experiments.maestro.workload import FACTOR_BATCH, FACTOR_INTERACTIVE, SLO, SLOWED, alone_s, answer_lengths
from experiments.residency.models import BLOCK, INTENT, OF_ROLE, QWEN3, TWELVE, CardModel
from hmas.contracts.job import NO_CHAIN
from hmas.contracts.request import Request, TaskType
from hmas.engine.core.profile import EngineProfile
from hmas.sim.workload import OfferedRequest
from hmas_lab.sim.jobs import JobCall, SimJob
from hmas_loadgen.workflows.applications import APPLICATIONS, ROLES, draft_of

INTENT_TOKENS = 4
BEFORE, BEFORE_SEED = 60, 7001  # jobs of each application that budgets and forecasts are made from
CARDS: Mapping[str, tuple[float, tuple[CardModel, ...]]] = {"five": (40.0, QWEN3), "twelve": (80.0, TWELVE)}


MODELS = {each.name: each for _, models in CARDS.values() for each in models}


def profile_of(job: SimJob, number: int) -> EngineProfile:
    return MODELS[job.calls[number].offered.request.model].profile


def tails_s(job: SimJob, *, moves: bool = False) -> list[float]:
    """Returns for each call the seconds from its begin to the end of the job, if nothing waits. `moves`: wherever a
    call goes to another model than the one before it, this one goes to sleep and that one wakes."""
    tails: list[float] = []
    for i, call in reversed([*enumerate(job.calls)]):
        later = [t + job.calls[k].outside_s + move_s(job, i, k, moves) for k, t in _ahead(job, i, tails)]
        own_s = alone_s(profile_of(job, i), call.offered.request.prompt_tokens, call.offered.output_tokens)
        tails.append(own_s + max(later, default=0.0))
    return tails[::-1]


def move_s(job: SimJob, before: int, number: int, moves: bool) -> float:
    """Returns what it takes to get from the model of one call to that of another."""
    old, new = (MODELS[job.calls[i].offered.request.model].engine() for i in (before, number))
    return old.sleep_s + new.wake_s if moves and old.engine != new.engine else 0.0


def _ahead(job: SimJob, number: int, tails: list[float]) -> list[tuple[int, float]]:
    """Pairs (call, its tail) of the calls that wait for this one; `tails` begins with that of the last call."""
    last = len(job.calls) - 1
    return [(k, tails[last - k]) for k in range(number + 1, last + 1) if number in job.calls[k].after]


def job_alone_s(job: SimJob) -> float:
    tails = tails_s(job)
    return max(tail + call.outside_s for tail, call in zip(tails, job.calls, strict=True) if not call.after)


@cache
def jobs_before(card: str, data: Path) -> Mapping[str, tuple[SimJob, ...]]:
    """Returns jobs of each application that were there before a run."""
    return {
        name: tuple(_job(card, name, f"b{i}", 0.0, 0.0, random, data) for i in range(BEFORE))
        for name in APPLICATIONS
        for random in [Random(f"{BEFORE_SEED} {card} {name}")]
    }


@cache
def budgets_s(card: str, data: Path) -> Mapping[str, float]:
    return {
        name: median(map(job_alone_s, jobs)) * (FACTOR_INTERACTIVE if APPLICATIONS[name].interactive else FACTOR_BATCH)
        for name, jobs in jobs_before(card, data).items()
    }


def make_jobs(card: str, data: Path, jobs_per_s: float, seconds: float, seed: int) -> list[SimJob]:
    """Returns the jobs that arrive at random within `seconds`, in Table I's shares."""
    random, found = Random(f"{seed} residency {card}"), list[SimJob]()
    names, weights = [*APPLICATIONS], [float(each.jobs) for each in APPLICATIONS.values()]
    allowed, at_s = budgets_s(card, data), random.expovariate(jobs_per_s)
    while at_s < seconds:
        (name,) = random.choices(names, weights)
        job = _job(card, name, f"j{len(found):05d}", at_s, allowed[name], random, data)
        while SLOWED * job_alone_s(job) > allowed[name]:
            job = _job(card, name, f"j{len(found):05d}", at_s, allowed[name], random, data)
        found.append(job)
        at_s += random.expovariate(jobs_per_s)
    return found


def _job(card: str, name: str, job: str, at_s: float, budget_s: float, random: Random, data: Path) -> SimJob:
    draft, own = draft_of(name, random, answer_lengths(data)), random.choice(TWELVE).name
    interactive = APPLICATIONS[name].interactive
    calls: list[JobCall] = []
    first = 0
    if card == "five" and interactive:
        first = 1
        calls.append(JobCall(offered=_call(job, 0, INTENT, draft.calls[0].added_tokens + 100, INTENT_TOKENS, at_s, ())))
    for number, call in enumerate(draft.calls, first):
        model = own if card == "twelve" else OF_ROLE[call.role]
        agent, thread = _digest(model, name, call.role), _digest(job, str(call.thread))
        head, whole = ROLES[call.role].system_tokens // BLOCK, (call.prompt_tokens + call.output_tokens) // BLOCK
        hashes = tuple((agent if i < head else thread) ^ i for i in range(whole))
        offered = _call(job, number, model, call.prompt_tokens, call.output_tokens, at_s, hashes)
        after = tuple(i + first for i in call.after) or tuple(range(first))
        calls.append(JobCall(offered=offered, after=after, outside_s=call.outside_s))
    return SimJob(id=job, template=name, interactive=interactive, arrival_s=at_s, budget_s=budget_s, calls=tuple(calls))


def _call(
    job: str, number: int, model: str, prompt: int, output: int, at_s: float, hashes: tuple[int, ...]
) -> OfferedRequest:
    request = Request(
        id=f"{job}-{number}", model=model, tenant="acme", flow="", prompt_tokens=prompt, max_tokens=4096, stream=True,
        slo=SLO, slo_stated=False, priority=0, weight=1.0, importance=0.75, arrival_s=at_s, prefix=NO_CHAIN,
    )  # fmt: skip
    full = prompt // BLOCK
    return OfferedRequest(
        request=request, output_tokens=output, slo=SLO, task=TaskType.UNKNOWN, prefix_hashes=hashes[:full],
        answer_hashes=hashes[full:],
    )  # fmt: skip


def _digest(*parts: str) -> int:
    return int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=6).digest(), "big") << 12

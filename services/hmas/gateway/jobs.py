"""The jobs that this gateway has seen lately, for those who look on: no decision is made from them."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from hmas.contracts.job import MAX_TOLD_JOBS, JobRow, JobsReply, Stage
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request
from hmas.gateway.exchange import Exchange
from hmas.gateway.metrics import JOBS_RUNNING, count_call, count_job, count_linked
from hmas.gateway.witness import Witness

MAX_JOBS = 4096
OVER_S = 60.0  # after the end of its last call a job is taken to be over
MAX_NAME_CHARS = 100  # of a tenant or a model, as it is told


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that is over: from its first call to the end of its last one it lasted `lasted_s`. `budget_s`: what its
    client allowed; None: nobody said."""

    lasted_s: float
    calls: int
    failed: int
    budget_s: float | None


@dataclass(slots=True)
class _Job:
    tenant: str
    model: str
    template: str
    begun_s: float
    quiet_from_s: float
    request_id: str = ""
    calls: int = 0
    running: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    busy_s: float = 0.0
    budget_s: float | None = None
    over: bool = False


class JobBook:
    """The last `MAX_JOBS` jobs by their ids; the one whose last call came longest ago is forgotten first."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._quiet: OrderedDict[str, _Job] = OrderedDict()  # without an open call, not yet over; the quietest first
        self.running = 0  # jobs with an open call

    def __len__(self) -> int:
        return len(self._jobs)

    def began(self, now_s: float, request: Request, stage: Stage, budget_s: float | None = None) -> None:
        """Counts a call that has come. `budget_s`: what its client allows for the whole job."""
        job = self._jobs.get(stage.job)
        if job is None:
            nodes = request.prefix.nodes
            template = f"{nodes[0]:016x}" if nodes else ""
            job = self._jobs[stage.job] = _Job(
                request.tenant[:MAX_NAME_CHARS], request.model[:MAX_NAME_CHARS], template, now_s, now_s
            )
            if len(self._jobs) > MAX_JOBS:
                forgotten, other = self._jobs.popitem(last=False)
                self._quiet.pop(forgotten, None)
                self.running -= other.running > 0
        self._jobs.move_to_end(stage.job)
        self._quiet.pop(stage.job, None)
        self.running += not job.running
        job.budget_s = budget_s if job.budget_s is None else job.budget_s
        job.calls += 1
        job.running += 1
        job.prompt_tokens += request.prompt_tokens
        job.request_id = request.id

    def ended(self, now_s: float, job_id: str, took_s: float, finished: bool, tokens: int, cached_tokens: int) -> None:
        """Counts the end of a call after `took_s` seconds, with what it generated and what its engine had cached."""
        job = self._jobs.get(job_id)
        if job is None or not job.running:
            return  # forgotten meanwhile
        job.running -= 1
        job.failed += not finished
        job.busy_s += took_s
        job.output_tokens += tokens
        job.cached_tokens += cached_tokens
        job.quiet_from_s = now_s
        if not job.running:
            self.running -= 1
            if not job.over:
                self._quiet[job_id] = job

    def over(self, now_s: float) -> list[EndedJob]:
        """Returns the jobs that are over since this was last asked. One that goes on after all is not told again."""
        found = []
        while self._quiet:
            name, job = next(iter(self._quiet.items()))
            if now_s - job.quiet_from_s < OVER_S:
                break
            del self._quiet[name]
            job.over = True
            found.append(EndedJob(job.quiet_from_s - job.begun_s, job.calls, job.failed, job.budget_s))
        return found

    def report(self, now_s: float, gateway: str) -> JobsReply:
        """Returns the jobs whose calls came last, at most `MAX_TOLD_JOBS`."""
        rows = tuple(
            JobRow(
                job=name, tenant=job.tenant, model=job.model, template=job.template, calls=job.calls,
                running=job.running, failed=job.failed, prompt_tokens=job.prompt_tokens,
                cached_tokens=job.cached_tokens, output_tokens=job.output_tokens, begun_age_s=now_s - job.begun_s,
                quiet_s=0.0 if job.running else now_s - job.quiet_from_s, busy_s=job.busy_s,
                request_id=job.request_id,
            )
            for name, job in islice(reversed(self._jobs.items()), MAX_TOLD_JOBS)
        )  # fmt: skip
        return JobsReply(gateway, rows, len(self._jobs) - len(rows))


class JobWitness(Witness):
    """Keeps the book of jobs, and counts them and their calls in the metrics. `clock` is that of the requests."""

    def __init__(self, gateway: str, clock: Callable[[], float]) -> None:
        self._gateway, self._clock, self._book = gateway, clock, JobBook()
        JOBS_RUNNING.set_function(lambda: self._book.running)

    def linked(self, exchange: Exchange) -> None:
        stage = exchange.stage
        if stage is not None:
            self._book.began(self._clock(), exchange.request, stage, exchange.job_budget_s)
            count_linked(stage.linked)

    def settled(self, exchange: Exchange) -> None:
        stage, now_s = exchange.stage, exchange.settled_s
        if stage is None or now_s is None:
            return
        request, cached, finished = exchange.request, exchange.cached_tokens or 0, exchange.outcome is Outcome.FINISHED
        self._book.ended(now_s, stage.job, now_s - request.arrival_s, finished, exchange.output_tokens, cached)
        count_call(request.prompt_tokens if exchange.runs else 0, cached)

    def count_over(self) -> None:
        """Counts the jobs that are over; to be called every `LIVE.progress_s` seconds or so."""
        for job in self._book.over(self._clock()):
            count_job(job.lasted_s, job.calls, job.failed, job.budget_s)

    def report(self) -> JobsReply:
        """Returns the jobs that this gateway has seen lately."""
        return self._book.report(self._clock(), self._gateway)

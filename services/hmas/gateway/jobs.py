"""The jobs that this gateway has seen lately, for those who look on: no decision is made from them."""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

from hmas.contracts.job import MAX_TOLD_JOBS, JobRow, JobsTold, Stage
from hmas.contracts.request import Request

MAX_JOBS = 4096
MAX_NAME_CHARS = 100  # of a tenant or a model, as it is told


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


class JobBook:
    """The last `MAX_JOBS` jobs by their ids; the one whose last call came longest ago is forgotten first."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def __len__(self) -> int:
        return len(self._jobs)

    def began(self, now_s: float, request: Request, stage: Stage) -> None:
        """Counts a call that has come."""
        job = self._jobs.get(stage.job)
        if job is None:
            nodes = request.prefix.nodes
            template = f"{nodes[0]:016x}" if nodes else ""
            job = self._jobs[stage.job] = _Job(
                request.tenant[:MAX_NAME_CHARS], request.model[:MAX_NAME_CHARS], template, now_s, now_s
            )
            if len(self._jobs) > MAX_JOBS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(stage.job)
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

    def told(self, now_s: float, gateway: str) -> JobsTold:
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
        return JobsTold(gateway, rows, len(self._jobs) - len(rows))

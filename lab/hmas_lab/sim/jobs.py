"""Jobs in a closed loop: each call of a job is offered when those it waits for have ended and the time outside, in
which tools or people work, is over. A job whose call fails has failed, and offers nothing more."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hmas.contracts.outcome import Outcome
from hmas.laws.closed_loop import ClosedLoop
from hmas.sim.workload import Journey, OfferedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCall:
    """One call of a job. It is sent `outside_s` after the end of the last of the calls `after` (their numbers in the
    job), or after the job's arrival. Its instant of arrival is filled in then."""

    offered: OfferedRequest
    after: tuple[int, ...] = ()
    outside_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimJob:
    """A job: its calls in an order in which each waits only for earlier ones. It is on time if its last call has ended
    `budget_s` after its arrival. `interactive`: a person waits for it."""

    id: str
    template: str
    interactive: bool
    arrival_s: float
    budget_s: float
    calls: tuple[JobCall, ...]

    @property
    def due_s(self) -> float:
        return self.arrival_s + self.budget_s


class JobClients:
    """The clients of all jobs. `first` returns the calls that open them; `ended` those that the end of one lets go."""

    def __init__(self, jobs: Iterable[SimJob]) -> None:
        self.jobs = {job.id: job for job in jobs}
        self.job_of = {call.offered.id: (job, i) for job in self.jobs.values() for i, call in enumerate(job.calls)}
        self._loops = {
            job.id: ClosedLoop({i: call.after for i, call in enumerate(job.calls)}) for job in self.jobs.values()
        }

    def first(self) -> list[OfferedRequest]:
        return [
            _at(call, job.arrival_s + call.outside_s)
            for job in self.jobs.values()
            for call in job.calls
            if not call.after
        ]

    def ended(self, now_s: float, request_id: str) -> list[OfferedRequest]:
        """Returns what is to be offered because this call has ended well."""
        job, number = self.job_of[request_id]
        free = (job.calls[i] for i in self._loops[job.id].ended(number))
        return [_at(call, now_s + call.outside_s) for call in free]


def _at(call: JobCall, at_s: float) -> OfferedRequest:
    return replace(call.offered, request=replace(call.offered.request, arrival_s=at_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScore:
    """The figures of one run, over all `offered` jobs. `job_goodput`: the share that was on time. `wasted`: the share
    of the output tokens that were made for jobs that were not. Times are in s."""

    offered: int
    job_goodput: float
    interactive_goodput: float
    batch_goodput: float
    wasted: float
    interactive_wait_s: float
    job_p50_s: float


def score_jobs(jobs: Iterable[SimJob], journeys: Mapping[str, Journey], service_s: Mapping[str, float]) -> JobScore:
    """Scores a run. `service_s`: the engine time that a call takes, by the id of its request."""
    kept: list[tuple[SimJob, bool]] = []
    spent = lost = waits = 0.0
    times: list[float] = []
    calls = 0
    for job in jobs:
        found = [journeys.get(call.offered.id) for call in job.calls]
        ends = [j.last_token_s if j is not None and j.outcome is Outcome.FINISHED else None for j in found]
        last = [end for end in ends if end is not None]
        ok = len(last) == len(ends) and max(last) <= job.due_s + 1e-9
        kept.append((job, ok))
        work = sum(service_s[j.offered.id] for j in found if j is not None and j.last_token_s is not None)
        spent += work
        lost += 0.0 if ok else work
        if len(last) == len(ends):
            times.append(max(last) - job.arrival_s)
        if job.interactive:
            started = [j for j in found if j is not None and j.first_token_s is not None]
            waits += sum((j.first_token_s or 0.0) - j.offered.request.arrival_s for j in started)
            calls += len(started)
    by_class = [[ok for job, ok in kept if job.interactive is kind] for kind in (True, False)]
    times.sort()
    return JobScore(
        offered=len(kept),
        job_goodput=sum(ok for _, ok in kept) / max(1, len(kept)),
        interactive_goodput=sum(by_class[0]) / max(1, len(by_class[0])),
        batch_goodput=sum(by_class[1]) / max(1, len(by_class[1])),
        wasted=lost / spent if spent else 0.0,
        interactive_wait_s=waits / max(1, calls),
        job_p50_s=times[len(times) // 2] if times else float("nan"),
    )

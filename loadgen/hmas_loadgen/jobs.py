"""Scores the jobs of a run: a job is on time as a whole, or late."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hmas.contracts.outcome import Outcome
from hmas.laws.scoring import is_ok, quantile
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.scoring import settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsScore:
    """The figures of jobs, over all `offered` ones. `lost`: a call of theirs did not finish. `on_time`: all calls
    finished, within the job's budget, or, if there is none, each within its own SLO. `goodput`: the share of these.
    Times are in s, from a job's start to the end of its last call, of jobs that were not lost; NaN if there are none.
    """

    offered: int
    calls: int
    on_time: int
    lost: int
    goodput: float
    time_p50_s: float
    time_p90_s: float


def job_scores(records: Iterable[RequestRecord], model: str, warmup_s: float = 0.0) -> dict[str, JobsScore]:
    """Returns the score by template, and of all jobs together under the empty name; nothing if there are no jobs. Jobs
    that started in the first `warmup_s` seconds do not count."""
    jobs: defaultdict[str, list[RequestRecord]] = defaultdict(list)
    for record in records:
        if record.job:
            jobs[record.job].append(record)
    by_template: defaultdict[str, list[list[RequestRecord]]] = defaultdict(list)
    for calls in jobs.values():
        if _start_s(calls) >= warmup_s:
            by_template[calls[0].template].append(calls)
    if not by_template:
        return {}
    everyone = [calls for found in by_template.values() for calls in found]
    return {"": _score(everyone, model)} | {name: _score(by_template[name], model) for name in sorted(by_template)}


def _start_s(calls: Sequence[RequestRecord]) -> float:
    return min(call.scheduled_s for call in calls)


def _score(jobs: Sequence[Sequence[RequestRecord]], model: str) -> JobsScore:
    times, on_time, lost = list[float](), 0, 0
    for calls in jobs:
        ends = [call.last_token_s for call in calls if call.outcome is Outcome.FINISHED]
        ended = [end for end in ends if end is not None]
        if len(ended) < len(calls):
            lost += 1
            continue
        took_s, budget_s = max(ended) - _start_s(calls), calls[0].job_budget_s
        times.append(took_s)
        on_time += took_s <= budget_s if budget_s is not None else all(is_ok(settlement(c, model)) for c in calls)
    times.sort()
    return JobsScore(
        offered=len(jobs),
        calls=sum(map(len, jobs)),
        on_time=on_time,
        lost=lost,
        goodput=on_time / len(jobs),
        time_p50_s=quantile(times, 0.5) if times else float("nan"),
        time_p90_s=quantile(times, 0.9) if times else float("nan"),
    )

"""The outlook of jobs: what the gateway tells a worker of the job that a request belongs to.

Only jobs are followed of which their client speaks, by a name or by a budget. The instant by which a job is to be done
is its first request's arrival plus the budget. A stage without an SLO of its own is due when the rest of its job, done
without waiting, would still be in time; one with an SLO is due by both.

A job is taken to have ended when nothing of it was open for `silent_s`; then the profiles learn from it. What comes
later is counted as a job of its own. All tables are bounded.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from hmas.contracts.job import JobFacts, Stage
from hmas.contracts.request import Request
from hmas.gateway.agent.config import JobOutlookConfig
from hmas.laws.job_profiles import DoneStage, Forecast, JobProfiles

LEAST_S = 0.001  # an SLO is above 0, also where its job is late


@dataclass(slots=True, eq=False)
class _Job:
    id: str
    template: int
    due_s: float | None
    quiet_s: float  # when a stage of it ended last
    ended: int = -1  # number of that stage
    open: dict[str, tuple[int, DoneStage]] = field(default_factory=dict)
    done: dict[int, DoneStage] = field(default_factory=dict)
    stages: int = 0


class JobOutlook:
    """The jobs that one gateway follows."""

    def __init__(self, config: JobOutlookConfig, *, prefill_tokens_per_s: float, tpot_s: float) -> None:
        self._config = config
        self.profiles = JobProfiles(config.profiles)
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._stages: dict[str, _Job] = {}  # by request
        self._prefill_s = 1.0 / prefill_tokens_per_s
        self._tpot_s = tpot_s

    def __len__(self) -> int:
        return len(self._jobs) + len(self._stages)

    def arrived(self, request: Request, stage: Stage, budget_s: float | None) -> Request:
        """Returns the request with what is known of its job. `budget_s`: what the client allows for the whole job."""
        now_s = request.arrival_s
        nodes = request.prefix.nodes
        agent = nodes[0] if nodes else 0
        job = self._jobs.get(stage.job)
        if job is None:
            job = self._jobs[stage.job] = _Job(stage.job, agent, None, now_s)
            while len(self._jobs) > self._config.max_jobs:
                self._forget(next(iter(self._jobs.values())))
        if job.due_s is None and budget_s is not None:
            job.due_s = now_s + budget_s
        index = job.stages
        outside_s = max(0.0, now_s - job.quiet_s) if job.ended >= 0 else 0.0
        job.stages += 1
        done = DoneStage(agent, request.prompt_tokens, 0, outside_s, job.ended)
        job.open[request.id] = index, done
        self._stages[request.id] = job
        found = self.profiles.forecast(job.template, agent, index)
        facts = JobFacts(job=job.id, index=index, left_s=None if job.due_s is None else job.due_s - now_s)
        if found is not None:
            median = found.median
            facts = replace(
                facts,
                output_tokens=median.own_tokens,
                output_tokens_p90=found.p90.own_tokens,
                future_stages=median.stages,
                future_prompt_tokens=median.prompt_tokens,
                future_output_tokens=median.output_tokens,
                future_outside_s=median.outside_s,
            )
        return self._due(replace(request, job=facts), found)

    def _due(self, request: Request, found: Forecast | None) -> Request:
        """Returns the request with the SLO that its job's budget leaves it, if what is not known yet turns out short:
        a job is not given up as long as it may still be on time."""
        facts = request.job
        if facts is None or facts.left_s is None:
            return request
        left_s = facts.left_s
        if found is not None:
            low = found.low if self._config.hopes else found.median
            spared = found.median.own_tokens - low.own_tokens
            left_s -= low.outside_s + low.way_prompt_tokens * self._prefill_s
            left_s -= (low.way_output_tokens - spared) * self._tpot_s
        left_s, slo = max(LEAST_S, left_s), request.slo
        if request.slo_stated:
            return replace(request, slo=replace(slo, ttlt_s=left_s if slo.ttlt_s is None else min(slo.ttlt_s, left_s)))
        return replace(request, slo=replace(slo, ttlt_s=left_s, whole=True), slo_stated=True)

    def settled(self, now_s: float, request_id: str, output_tokens: int, tpot_s: float = 0.0) -> None:
        """Records that a request has ended with so many tokens, `tpot_s` apart (0: not known)."""
        job = self._stages.pop(request_id, None)
        if job is None:
            return
        index, stage = job.open.pop(request_id)
        if index < self._config.max_stages:
            job.done[index] = stage._replace(output_tokens=output_tokens)
        job.quiet_s, job.ended = now_s, index
        if not job.open:
            self._jobs.move_to_end(job.id)
        if tpot_s > 0.0 and output_tokens >= self._config.timed_tokens:
            share = 1.0 if tpot_s < self._tpot_s else self._config.rise
            self._tpot_s += share * (tpot_s - self._tpot_s)

    def tick(self, now_s: float) -> None:
        """Learns from the jobs that have been silent for long enough."""
        while self._jobs:
            job = next(iter(self._jobs.values()))
            if job.open:
                self._jobs.move_to_end(job.id)
                return
            if now_s - job.quiet_s < self._config.silent_s:
                return
            self._forget(job)

    def _forget(self, job: _Job) -> None:
        del self._jobs[job.id]
        for request_id in job.open:
            del self._stages[request_id]
        if job.done:
            kept = sorted(job.done)
            numbers: dict[int | None, int] = {index: number for number, index in enumerate(kept)}
            stages = (job.done[index] for index in kept)
            self.profiles.learn(job.template, [s._replace(after=numbers.get(s.after, -1)) for s in stages])

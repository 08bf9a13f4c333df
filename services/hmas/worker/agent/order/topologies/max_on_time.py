"""MaxOnTime: the order that keeps the most requests on time, by Moore-Hodgson over predicted work and measured service.

`hmas.laws.moore_hodgson` has the classic case with its proof. In the general case (weights, arrivals, a batched engine,
predictions) this is a heuristic. `work_model.py` tells what a request takes up of the engines, when that must be done
and what it is worth, `fairness.py` whose requests step aside; the request with the most work per unit of value is given
up first.
- A request that was given up may be taken back as long as it can be on time; with the hint `by_tokens`, until its last
  token is due.
- Of a job with a budget the whole is on time or late: which jobs are kept is planned apart, over whole jobs
  (`job_plan.py`). The stages of the others wait behind all that can be on time, also those that come later. A stage's
  latest start comes from the job's budget: the gateway makes it its SLO (`gateway/agent/jobs/job_outlook.py`).
- A request that was refused and comes back at the time it was told is given up last; such requests get a share of the
  rate.
- Among the orders that keep the same set on time, the one that starts with the shortest is the fastest: of the planned
  requests the one with the least work goes first whose work is within a share of the slack of all before it
  (`DeadlineOrder.quickest`). Slack is also what takes in requests that are still to come, so the share is the hint
  `slack_share` where work arrives evenly, and falls as its variation grows (`surges.py`). With `by_tokens` it is 0, and
  a tenant that is served far beyond its share passes nobody.
- A request that is given up is relegated, not refused: it is served when none waits that can be on time, the one with
  the least work per value first, apart from the share of the service that the oldest may claim.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.deadline_order import DeadlineOrder
from hmas.worker.agent.order.fairness import Fairness, FairnessConfig
from hmas.worker.agent.order.job_plan import JobPlan, JobPlanConfig, StagePlan, budgeted
from hmas.worker.agent.order.keyed_heap import KeyedHeap, Rank
from hmas.worker.agent.order.planned_work import PlannedWork
from hmas.worker.agent.order.relegated import Relegated, RelegatedConfig
from hmas.worker.agent.order.surges import Surges, SurgesConfig
from hmas.worker.agent.order.work_model import WorkModel, WorkModelConfig

RELEGATED_RANK = 1e9  # seconds; added to the rank of a relegated request, so that it comes behind any deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxOnTimeConfig:
    """The constants of the order, and those of what it is made of."""

    restore_every_s: float = 0.25  # time between two attempts to take relegated requests back
    max_restored: int = 8  # most relegated requests taken back at once
    max_single_drops: int = 4  # jobs given up one by one before those left are given up in one pass
    scan_limit: int = 32  # jobs examined in that pass
    blocks: int = 16  # of the order, in which the request that goes first is looked for
    max_retired: int = 64  # most relegated requests found to be late at once
    promised_share: float = 0.1  # share of the rate that is kept for requests that come back as told
    promised_ahead_s: float = 60.0  # seconds of that share that may be promised at once
    work: WorkModelConfig = field(default_factory=WorkModelConfig)
    fairness: FairnessConfig = field(default_factory=FairnessConfig)
    jobs: JobPlanConfig = field(default_factory=JobPlanConfig)
    relegated: RelegatedConfig = field(default_factory=RelegatedConfig)
    surges: SurgesConfig = field(default_factory=SurgesConfig)


class MaxOnTime:
    """Keeps the most requests on time; the module's docstring describes the model.

    Requests that are planned to be on time are in deadline order, and the shortest of those that leave the others their
    slack goes first. The relegated ones are in heaps, those that could still be on time and those that cannot, each
    with the least work per value first.
    """

    name = TopologyName.MAX_ON_TIME
    accounts_service = True
    paced = True
    sets_aside = True
    uses_tags = True
    __slots__ = (
        "_by_tokens", "_config", "_fairness", "_late", "_model", "_newest", "_next", "_now_s", "_on_time", "_plan",
        "_promised_s", "_relegated", "_restored_s", "_share", "_shelved", "_slack_share", "_spare", "_surges",
    )  # fmt: skip

    def __init__(self, hints: Hints, config: MaxOnTimeConfig) -> None:
        self._config = config
        self._by_tokens = hints.by_tokens
        self._slack_share = 0.0 if hints.by_tokens else hints.slack_share  # ESG loses by it (docs/results/fast.md)
        self._share = 0.0  # of the slack that a shorter request may take now
        self._surges = Surges(config.surges)
        self._newest = -1  # the largest number of a request that was counted in `_surges`
        self._next: PlannedWork | None = None  # found by `_first`; None once order, clock or rate changed
        self._on_time = DeadlineOrder()
        self._spare: KeyedHeap[QueueEntry] = KeyedHeap()
        self._late: KeyedHeap[QueueEntry] = KeyedHeap()
        self._plan = JobPlan(config.jobs)
        self._fairness = Fairness(config.fairness, self._plan)
        self._model = WorkModel(config.work, self._fairness, by_tokens=hints.by_tokens)
        self._shelved: KeyedHeap[QueueEntry] = KeyedHeap()  # stages of jobs that the plan gives up
        self._relegated = Relegated(config.relegated)  # all entries of `_spare`, `_shelved` and `_late`
        self._promised_s = 0.0  # instant until which the share of the rate for promised requests is taken
        self._now_s = 0.0
        self._restored_s = 0.0

    def __len__(self) -> int:
        return len(self._on_time) + len(self._relegated)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain((job.entry for job in self._on_time), self._relegated)

    def observe(self, view: ServiceView) -> None:
        self._now_s = view.now_s
        self._next = None
        self._surges.observe(view.now_s)
        self._share = self._slack_share * self._surges.calm
        self._model.see(view)
        self._relegate()
        self._retire()
        if self._plan.due(view.now_s):
            self._plan_jobs()
        if view.now_s - self._restored_s >= self._config.restore_every_s:
            self._restored_s = view.now_s
            self._restore()

    def _retire(self) -> None:
        """Moves relegated requests that can no longer be on time from `_spare` to `_late`."""
        for _ in range(self._config.max_retired):
            if (entry := self._spare.peek()) is None:
                return
            start_s = entry.slack_s if self._by_tokens else self._model.latest_start_s(entry)
            if start_s >= self._now_s:
                return
            self._spare.remove(entry)
            self._late.push(self._relegated.work(entry) / self._model.value(entry), entry)

    def _relegate(self) -> None:
        """Relegates requests until all others are planned to be on time; in a long queue only the first
        `scan_limit` jobs are examined per call, once `max_single_drops` jobs were given up."""
        config = self._config
        self._model.replan()
        for _ in range(config.max_single_drops):
            job = self._on_time.sacrifice(self._now_s, self._model.planned_rate)
            if job is None:
                return
            self._on_time.remove(job.entry)
            self._set_aside(job)
        for job in self._on_time.give_up(self._now_s, self._model.planned_rate, config.scan_limit):
            self._set_aside(job)

    def _restore(self) -> None:
        """Takes relegated requests back, the least work per value first, as long as all stay on time.

        There may be room again because requests planned before them have left, or because the engines are faster.
        """
        for _ in range(self._config.max_restored):
            if (entry := self._spare.peek()) is None:
                return
            self._add(entry)
            if self._on_time.sacrifice(self._now_s, self._model.planned_rate) is not None:
                self._on_time.remove(entry)
                return
            self._spare.remove(entry)
            self._relegated.remove(entry)
            entry.relegated = False

    def _set_aside(self, job: PlannedWork) -> None:
        entry = job.entry
        self._relegated.add(entry, job.work)
        (self._shelved if budgeted(entry) else self._spare).push(job.price, entry)

    def _plan_jobs(self) -> None:
        """Decides anew which jobs with a budget are kept, and moves their stages."""
        jobs = [job for job in self._model.jobs(self._plan) if job.entry not in self._late]
        stages = []
        for job in jobs:
            entry = job.entry
            flood = self._fairness.yielding(entry.request.tenant)
            price_factor = flood / self._model.value(entry)
            ahead = max(0.0, job.price / price_factor - job.work)
            stages.append(
                StagePlan(entry, self._model.latest_start_s(entry), job.work, ahead, price_factor, flood > 1.0)
            )
        others = ((job.due_s, job.work) for job in self._on_time if not budgeted(job.entry))
        self._plan.plan(self._now_s, self._model.rate.value, stages, others)
        self._next = None
        for job, stage in zip(jobs, stages, strict=True):
            entry, shelved = job.entry, job.entry in self._shelved
            if self._plan.gives_up(entry):
                if not shelved:
                    self._on_time.remove(entry)
                    self._set_aside(job)
                if stage.start_s < self._now_s:
                    self._shelved.remove(entry)
                    self._late.push(job.price, entry)
            elif shelved:
                self._shelved.remove(entry)
                self._relegated.remove(entry)
                entry.relegated = False
                self._on_time.add(job)
        changed = self._fairness.job_shares.refresh(self._now_s, self._model.rate.value, len(self._relegated) > 0)
        for entry in [job.entry for job in self._on_time if job.entry.request.tenant in changed] if changed else ():
            self._on_time.remove(entry)
            self._add(entry)

    def late(self) -> Sequence[QueueEntry]:
        return list(islice(self._late, self._config.max_retired))

    def promise_s(self, entry: QueueEntry) -> float:
        """Returns the seconds after which the queued `entry`, if refused now, may come again and is then given up last.

        By then enough of the waiting work with a lower price is done for it to be on time, and `promised_share` of the
        rate has room for it beside all other requests with a promise (generic cell rate algorithm).
        """
        job, rate = self._model.job(entry), self._model.rate.value
        before = sum(other.work for other in self._on_time if other.price < job.price)
        slack_s = self._model.latest_start_s(entry) - entry.request.arrival_s
        self._promised_s = max(self._promised_s, self._now_s) + job.work / (self._config.promised_share * rate)
        return max(0.0, before / rate - slack_s, self._promised_s - self._now_s - self._config.promised_ahead_s)

    def push(self, entry: QueueEntry) -> None:
        if entry.relegated:
            job = self._model.job(entry)
            self._relegated.add(entry, job.work)
            self._late.push(job.price, entry)
            return
        work = self._add(entry)
        if budgeted(entry):
            self._plan.add(entry)
            self._fairness.job_shares.waits(self._now_s, entry.request.tenant)
            if self._plan.gives_up(entry):
                self._set_aside(self._on_time.remove(entry))
        if entry.seq > self._newest:
            self._newest = entry.seq
            self._surges.add(entry.enqueued_s, work)

    def peek(self) -> QueueEntry | None:
        return self._relegated.claimant() or self._best()

    def pop(self) -> QueueEntry | None:
        claimant = self._relegated.claimant()
        if (entry := claimant or self._best()) is None:
            return None
        first = self._on_time.first()
        work, entry.urgency = self._take(entry)
        if first is not None and not entry.relegated:
            entry.urgency = min(entry.urgency, first.rank[0])  # it goes before that one
        entry.charged = 0.0
        if claimant is not None:
            self._relegated.spend(work)
        else:
            self._relegated.earn(self._now_s, work)
        self._model.rate.add(work)
        self._fairness.granted(self._now_s, entry, work, budgeted=budgeted(entry))
        self._mark_idle()
        return entry

    def remove(self, entry: QueueEntry) -> None:
        self._take(entry)
        self._mark_idle()

    def reannotate(self, entry: QueueEntry) -> None:
        self._take(entry)
        entry.relegated = False
        self.push(entry)

    def rebuild(self, entries: Iterable[QueueEntry]) -> None:
        waiting = list(entries)
        for entry in waiting:
            entry.relegated = False
            if budgeted(entry):
                self._plan.add(entry)
        self._next = None
        self._on_time.refill(self._model.jobs(waiting))

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        self._fairness.served(self._now_s, entry, tokens)

    def why(self, entry: QueueEntry, now_s: float) -> str:
        on_time = f"on time if it starts within {entry.spare_s(now_s):.1f} s"
        return "came back at the time it was told" if entry.promised else on_time

    def _take(self, entry: QueueEntry) -> tuple[float, float]:
        """Takes `entry` out and returns its work and its rank; relegated entries rank behind all others."""
        self._plan.remove(entry)
        if entry in self._on_time:
            self._next = None
            job = self._on_time.remove(entry)
            return job.work, job.rank[0]
        work = self._relegated.remove(entry)
        next(heap for heap in (self._spare, self._shelved, self._late) if entry in heap).remove(entry)
        return work, RELEGATED_RANK + entry.request.arrival_s

    def _mark_idle(self) -> None:
        if not len(self):
            self._model.rate.ran_dry()

    def _best(self) -> QueueEntry | None:
        if (job := self._first()) is not None:
            return job.entry
        set_aside = [entry for heap in (self._spare, self._shelved) if (entry := heap.peek()) is not None]
        return min(set_aside, key=_rank, default=None) or self._late.peek()

    def _first(self) -> PlannedWork | None:
        """Returns the planned job that goes first: the shortest of those that leave the others their slack."""
        if len(self._on_time) < 2:
            return self._on_time.first()
        if self._next is None:
            self._next = self._on_time.quickest(self._now_s, self._model.planned_rate, self._share, self._config.blocks)
        return self._next

    def _add(self, entry: QueueEntry) -> float:
        """Plans `entry` to be on time and returns its work."""
        self._next = None
        job = self._model.job(entry)
        self._on_time.add(job)
        return job.work


def _rank(entry: QueueEntry) -> Rank:
    assert entry.rank is not None
    return entry.rank

"""MaxOnTime: the order that keeps the most requests on time, by Moore-Hodgson over predicted work and measured service.

The classic case. n jobs of known work p_j, all released, wait for one sequential server of rate 1 and have due dates
d_j; as many as possible are to be on time (1 || sum U_j). Moore (1968): take the jobs by due date; when the one just
taken is late, give up the longest taken so far. Proof. If a set of jobs can be done in time at all, it can be done in
order of due date: exchange two neighbours that are out of order, and the one due first ends sooner, while the other
ends when the first one did, which is before its own due date. Let S_k be the jobs kept of the first k, and S(j) the j
shortest jobs of a set S. Claim: S_k is in time; no set in time of the first k has more jobs; and none of j <= |S_k|
jobs has less work than S_k(j). This is trivial for k = 0; let it hold for k-1.
- In time. If k is late after S_{k-1}, only k is. Without the longest, m, the jobs before m end as they did and those
  after it sooner by p_m >= p_k, so k ends no later than the job before it did, which was in time and is due no later.
- Work. Let S be in time with j <= |S_k| jobs. Without k in it, S has at least the work of S_{k-1}(j); with k, S - k has
  at least that of S_{k-1}(j-1), and S that plus p_k. Neither is less than the work of (S_{k-1} + k)(j), and giving up
  the longest of more than j jobs does not change which j are the shortest: that set is S_k(j).
- Number. Let S be in time with |S_k| + 1 jobs. If nothing was given up, S without k has more jobs than S_{k-1}. If one
  was, S has |S_{k-1}| + 1 jobs, so k is one of them, and the others have at least the work of S_{k-1}: k, the last of
  them due, ends no sooner than after S_{k-1}, late. Neither can be.  QED

In the general case (weights, arrivals, a batched engine, predictions) this is a heuristic, modelled as follows.
- Server: all engines together. The work of a request is the engine time that it takes up: what its prompt adds to the
  steps, and for each output token the share of a step that its sequence slot stands for or, where memory or the time
  of a step is scarcer than slots, its part of that. Engines work at a rate of about 1 each; the rate is measured while
  requests wait, and only `headroom` of it is planned with, because more requests are still to come.
- Due: a request must be done by the latest start that meets its TTFT, plus its own work at that rate. TPOT is kept by
  the pump's prefill window and by the limits in force.
- Decoding outlasts the plan: while slots or memory are scarce, a long answer delays the requests that come later. So
  the order is by latest start plus `patience` times the time that the answer takes, in proportion to how full the
  engines are, and to its part of what is scarce over that of the sequences that run.
- Utility: the request with the most work per unit of value is given up first; value = tenant's weight * weight of its
  type * 2^-priority (H-MAS Eq. 1).
- With the hint `by_tokens`, value is that times what ESG (Eq. 6) loses if the request is set aside: its service tokens
  less the part SLO / TTLT of them that ESG still counts when it is served `set_aside_s` late. ESG counts until the last
  token, so a request may start later than its TTFT asks, yet only by `esg_spare` of the time that its last token would
  allow, because a plan of minutes is worth little with lengths that are guesses. A request that was given up may still
  be taken back until its last token is due.
- A tenant that was served more than `tolerated` times its weighted share lately (virtual token counter) is given up
  first: its price is multiplied, so that its flood does not make the others late.
- Of a job with a budget the whole is on time or late: which jobs are kept is planned apart, over whole jobs
  (`job_plan.py`). The stages of those that are kept go by the instant at which their job is due, behind no request that
  must start before that; the stages of the others wait behind all that can be on time, also those that come later.
  While some are given up, a tenant that got more service than another gives up its own first, and what it sends waits
  behind what the other sends (`job_shares.py`). A
  stage's latest start comes from the job's budget: the gateway makes it its SLO (`gateway/agent/outlook.py`). Its price
  is the work of all that its job still needs.
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
from math import exp, inf

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.deadline_order import DeadlineOrder, Job
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.job_plan import JobPlan, JobPlanConfig, StagePlan
from hmas.worker.agent.job_shares import JobShares, JobSharesConfig
from hmas.worker.agent.keyed_heap import KeyedHeap, Place
from hmas.worker.agent.relegated import Relegated, RelegatedConfig
from hmas.worker.agent.served_shares import ServedShares, ServedSharesConfig
from hmas.worker.agent.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.surges import Surges, SurgesConfig

YIELDED_S = 1e6  # seconds; added to the key of what a tenant sends that is ahead of others, and a factor on its price
RELEGATED_RANK = 1e9  # seconds; added to the rank of a relegated request, so that it comes behind any deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRateConfig:
    """How the rate is measured at which the engines work, in engine seconds of work per second."""

    window_s: float = 15.0  # time constant of the mean over samples
    sample_s: float = 0.5  # least length of a sample
    cold_rate: float = 0.8  # rate assumed of one engine until it is measured
    cold_s: float = 2.0  # the assumed rate weighs as much as a measurement of so many seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxOnTimeConfig:
    """The constants of the model that the module's docstring describes."""

    headroom: float = 0.9  # share of the measured rate that is planned with
    replanned: float = 0.05  # least relative change of the rate for which the plan takes the new one
    patience: float = 0.12  # seconds by which a request is put back in the order per second of decoding
    free_share: float = 0.5  # share of slots or memory in use at which decode work begins to matter
    full_share: float = 0.9  # share of slots or memory in use at which it matters in full
    smoothing: float = 0.05  # weight of a new observation in how full the engines are
    default_slots: int = 256  # sequence slots assumed of an engine until one was seen
    set_aside_s: float = 60.0  # seconds by which a request that is set aside is taken to be late, for ESG
    esg_spare: float = 0.2  # share of the time up to the last token by which a start may come later, for ESG
    restore_every_s: float = 0.25  # time between two attempts to take relegated requests back
    restored: int = 8  # most relegated requests taken back at once
    few: int = 4  # jobs given up one by one before those left are given up in one pass
    walked: int = 32  # jobs examined in that pass
    looked: int = 16  # blocks of the order in which the request that goes first is looked for
    retired: int = 64  # most relegated requests found to be late at once
    priority_span: int = 8  # priorities above it, or below its negative, count as that
    tolerated: float = 2.0  # a tenant served more than this multiple of its share is given up first
    flood_power: int = 8  # exponent with which the excess over that raises the price of the tenant's work
    promised_share: float = 0.1  # share of the rate that is kept for requests that come back as told
    promised_ahead_s: float = 60.0  # seconds of that share that may be promised at once
    rate: ServiceRateConfig = field(default_factory=ServiceRateConfig)
    jobs: JobPlanConfig = field(default_factory=JobPlanConfig)
    job_shares: JobSharesConfig = field(default_factory=JobSharesConfig)
    relegated: RelegatedConfig = field(default_factory=RelegatedConfig)
    served: ServedSharesConfig = field(default_factory=ServedSharesConfig)
    surges: SurgesConfig = field(default_factory=SurgesConfig)


class ServiceRate:
    """The rate at which all engines together work: engine seconds of work dispatched per second, while requests wait.

    `most` is the upper limit of the rate; it can exceed `engines`, because an engine that computes prompts faster than
    predicted does more than one second of work per second.
    """

    __slots__ = ("_begun_s", "_config", "_done", "_idle", "_rate", "_seen_s", "engines", "most")

    def __init__(self, config: ServiceRateConfig) -> None:
        self._config = config
        self.engines = 1
        self.most = 1.0
        self._rate: float | None = None
        self._begun_s: float | None = None
        self._done = 0.0
        self._seen_s = config.cold_s
        self._idle = True

    @property
    def value(self) -> float:
        return self._config.cold_rate * self.engines if self._rate is None else self._rate

    def add(self, work: float) -> None:
        self._done += work

    def ran_dry(self) -> None:
        """Notes that the queue was empty for a moment, so that the present sample does not show the capacity."""
        self._idle = True

    def observe(self, now_s: float) -> None:
        sample_s = self._config.sample_s
        elapsed_s = sample_s if self._begun_s is None else now_s - self._begun_s
        if elapsed_s < sample_s:
            return
        if not self._idle:
            sample = self._done / elapsed_s
            self._seen_s += elapsed_s
            share = max(1.0 - exp(-elapsed_s / self._config.window_s), elapsed_s / self._seen_s)
            self._rate = min(self.most, self.value + share * (sample - self.value))
        self._begun_s, self._done, self._idle = now_s, 0.0, False


class MaxOnTime:
    """Keeps the most requests on time; the module's docstring describes the model.

    Requests that are planned to be on time are in deadline order, and the shortest of those that leave the others their
    slack goes first. The relegated ones are in two heaps, those that could
    still be on time and those that cannot, each with the least work per value first.
    """

    name = TopologyName.MAX_ON_TIME
    accounts_service = True
    paced = True
    sets_aside = True
    __slots__ = (
        "_by_tokens", "_config", "_context_s", "_floods", "_floor_s", "_fullness", "_job_shares", "_kv_tokens", "_late",
        "_memory_lead", "_newest", "_next", "_now_s", "_on_time", "_plan", "_planned_rate", "_promised_s", "_rate",
        "_relegated", "_restored_s", "_room_s", "_served", "_share", "_shelved", "_slack_share", "_slots", "_spare",
        "_surges", "_typical", "_wait_s",
    )  # fmt: skip

    def __init__(self, hints: Hints, config: MaxOnTimeConfig) -> None:
        self._config = config
        self._by_tokens = hints.by_tokens
        self._slack_share = 0.0 if hints.by_tokens else hints.slack_share  # ESG loses by it (docs/results/fast.md)
        self._share = 0.0  # of the slack that a shorter request may take now
        self._surges = Surges(config.surges)
        self._newest = -1  # the largest number of a request that was counted in `_surges`
        self._next: Job | None = None  # what `_first` found; None once the order, the clock or the rate has changed
        self._on_time = DeadlineOrder()
        self._spare: KeyedHeap[QueueEntry] = KeyedHeap()
        self._late: KeyedHeap[QueueEntry] = KeyedHeap()
        self._plan = JobPlan(config.jobs)
        self._job_shares = JobShares(config.job_shares)
        self._shelved: KeyedHeap[QueueEntry] = KeyedHeap()  # stages of jobs that the plan gives up
        self._relegated = Relegated(config.relegated)  # all entries of `_spare`, `_shelved` and `_late`
        self._rate = ServiceRate(config.rate)
        self._served = ServedShares(config.served)
        self._floods: dict[str, float] = {}  # price factors by tenant, valid until more is served
        self._promised_s = 0.0  # instant until which the share of the rate for promised requests is taken
        self._planned_rate = config.headroom * config.rate.cold_rate
        self._floor_s = 0.0
        self._fullness = 0.0
        self._wait_s = 0.0  # from the grant until an engine begins with a prompt, as it was lately
        self._slots = config.default_slots
        self._kv_tokens = 0
        self._typical = float(config.default_slots)
        self._context_s = 0.0  # of a step, for each token of context; of an engine, in the mean
        self._room_s = inf  # of its time for sequences
        self._memory_lead = 0.0  # by how much more of the memory is in use than of the slots
        self._now_s = 0.0
        self._restored_s = 0.0

    def __len__(self) -> int:
        return len(self._on_time) + len(self._relegated)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain((job.entry for job in self._on_time), self._relegated)

    # --- the model

    def _job(self, entry: QueueEntry) -> Job:
        (job,) = self._jobs((entry,))
        return job

    def _jobs(self, entries: Iterable[QueueEntry]) -> Iterator[Job]:
        """Makes the job of each of `entries`; what they have in common is computed once, as a switch of topology brings
        the whole queue."""
        floor_s, rate, floods = self._floor_s, self._planned_rate, self._floods
        patience, slot = self._config.patience * self._fullness * self._typical, 1.0 / self._slots
        kv_tokens = self._kv_tokens if self._memory_lead > 0.0 else 0
        latest_start_s, value_of = self._latest_start_s, self._value
        room_s, context_s = self._room_s, self._context_s
        for entry in entries:
            tokens, share = entry.predicted_tokens, slot
            if room_s < inf:  # what a sequence takes of a step besides is nearly all prompts, which `prefill_s` counts
                step_s = context_s * (entry.request.prompt_tokens + tokens / 2.0)
                share = min(1.0, max(share, step_s / room_s))
            if kv_tokens:
                share = min(1.0, max(share, (entry.request.prompt_tokens + tokens / 2.0) / kv_tokens))
            work = decode = tokens * entry.tpot_s * share
            if entry.prefill_s > floor_s:
                work += entry.prefill_s - floor_s
            tenant = entry.request.tenant
            flood = floods[tenant] if tenant in floods else self._flood(tenant)
            start_s = latest_start_s(entry)
            yielding = self._yielding(tenant)
            flood = max(flood, yielding)
            price, key = work, start_s + patience * decode
            passes = flood <= 1.0 and not self._job_shares.leads(tenant)
            if (job := entry.request.job) is not None and job.left_s is not None:
                price += entry.future_s - (1.0 - share) * job.future_output_tokens * entry.tpot_s
                key, passes = entry.request.arrival_s + job.left_s, False
                flood = yielding
            if yielding > 1.0:
                key += YIELDED_S
            price = 0.0 if entry.promised else price / value_of(entry) * flood
            yield Job(entry, key, start_s + work / rate, work, price, passes=passes)

    def _latest_start_s(self, entry: QueueEntry) -> float:
        if _budgeted(entry):  # its forecast is one of hope, and a job once given up has wasted what it took
            return entry.ttft_deadline_s - entry.prefill_s
        start_s = entry.ttft_deadline_s - entry.prefill_s - self._wait_s
        return start_s + self._config.esg_spare * (entry.slack_s - start_s) if self._by_tokens else start_s

    def _value(self, entry: QueueEntry) -> float:
        priority = entry.request.priority
        span = self._config.priority_span
        if not -span <= priority <= span:
            priority = span if priority > 0 else -span
        value = float(entry.utility * 2.0**-priority)
        if not self._by_tokens:
            return value
        late_s = self._config.set_aside_s
        return value * entry.service * late_s / (late_s + entry.deadline_s - entry.request.arrival_s)

    def _flood(self, tenant: str) -> float:
        """Returns the factor on the price of a tenant's work: above 1 for one that was served too far beyond its share
        lately, otherwise 1."""
        config = self._config
        # Of two tenants none can have more than twice its share; where jobs wait, less than that is a flood.
        excess = self._served.excess(tenant) / (config.jobs.tolerated if len(self._plan) else config.tolerated)
        flood = self._floods[tenant] = excess**config.flood_power if excess > 1.0 else 1.0
        return flood

    def _yielding(self, tenant: str) -> float:
        """Returns the factor on the price of the work of a tenant, above 1 if it is ahead of others."""
        return YIELDED_S if self._job_shares.ahead(tenant) else 1.0

    def observe(self, view: ServiceView) -> None:
        self._now_s = view.now_s
        self._next = None
        self._surges.observe(view.now_s)
        self._share = self._slack_share * self._surges.calm
        self._floor_s = view.prefill_floor_s
        if view.engines:
            self._see(view)
        self._rate.observe(view.now_s)
        self._relegate()
        self._retire()
        if self._plan.due(view.now_s):
            self._plan_jobs()
        if view.now_s - self._restored_s >= self._config.restore_every_s:
            self._restored_s = view.now_s
            self._restore()

    def _retire(self) -> None:
        """Moves relegated requests that can no longer be on time from `_spare` to `_late`."""
        for _ in range(self._config.retired):
            entry = self._spare.peek()
            if entry is None:
                return
            start_s = entry.slack_s if self._by_tokens else self._latest_start_s(entry)
            if start_s >= self._now_s:
                return
            self._spare.remove(entry)
            self._late.push(self._relegated.work(entry) / self._value(entry), entry)

    def _see(self, view: ServiceView) -> None:
        config, engines = self._config, view.engines
        cap = running = kv_tokens = kv_free = 0
        for engine in engines:
            cap += engine.cap
            running += engine.running
            kv_tokens += engine.kv_tokens
            kv_free += engine.kv_free_tokens
        slots, memory = running / cap, 1.0 - kv_free / kv_tokens if kv_tokens else 0.0
        timed = [engine for engine in engines if engine.step is not None]
        if timed:
            self._see_steps(timed)
            slots = max(slots, sum(min(1.0, engine.used_s / engine.room_s) for engine in timed) / len(timed))
        else:
            self._room_s = inf
        self._memory_lead += config.smoothing * (memory - slots - self._memory_lead)
        full = max(slots, memory)
        full = min(1.0, max(0.0, (full - config.free_share) / (config.full_share - config.free_share)))
        held = min(cap, running / memory) / len(engines) if memory > slots else cap / len(engines)
        self._typical += config.smoothing * (held - self._typical)
        self._fullness += config.smoothing * (full - self._fullness)
        self._slots = max(1, cap // len(engines))
        self._kv_tokens = kv_tokens // len(engines)
        self._rate.engines = len(engines)
        self._rate.most = sum(max(1.0, engine.prefill_pace) for engine in engines)
        self._wait_s = sum(engine.prefill_wait_s for engine in engines) / len(engines)

    def _see_steps(self, engines: Sequence[EngineOccupancy]) -> None:
        """Takes the mean of what a token of context costs in the engines' steps, and of the time that these have."""
        count = len(engines)
        self._room_s = sum(engine.room_s for engine in engines) / count
        self._context_s = sum(engine.step.context_s for engine in engines if engine.step is not None) / count

    def _relegate(self) -> None:
        """Relegates requests until all others are planned to be on time; in a long queue only the first `walked` jobs
        are examined per call, once `few` jobs were given up."""
        config = self._config
        rate = config.headroom * self._rate.value
        if abs(rate - self._planned_rate) > config.replanned * self._planned_rate:  # seldom: a new one costs
            self._planned_rate = rate
        for _ in range(config.few):
            job = self._on_time.sacrifice(self._now_s, self._planned_rate)
            if job is None:
                return
            self._on_time.remove(job.entry)
            self._set_aside(job)
        for job in self._on_time.give_up(self._now_s, self._planned_rate, config.walked):
            self._set_aside(job)

    def _restore(self) -> None:
        """Takes relegated requests back, the least work per value first, as long as all stay on time.

        There may be room again because requests planned before them have left, or because the engines are faster.
        """
        for _ in range(self._config.restored):
            if (entry := self._spare.peek()) is None:
                return
            self._add(entry)
            if self._on_time.sacrifice(self._now_s, self._planned_rate) is not None:
                self._on_time.remove(entry)
                return
            self._spare.remove(entry)
            self._relegated.remove(entry)
            entry.relegated = False

    def _set_aside(self, job: Job) -> None:
        entry = job.entry
        self._relegated.add(entry, job.work)
        (self._shelved if _budgeted(entry) else self._spare).push(job.price, entry)

    def _plan_jobs(self) -> None:
        """Decides anew which jobs with a budget are kept, and moves their stages."""
        jobs = [job for job in self._jobs(self._plan) if job.entry not in self._late]
        stages = []
        for job in jobs:
            entry = job.entry
            flood = self._yielding(entry.request.tenant)
            dearness = flood / self._value(entry)
            ahead = max(0.0, job.price / dearness - job.work)
            stages.append(StagePlan(entry, self._latest_start_s(entry), job.work, ahead, dearness, flood > 1.0))
        others = ((job.due_s, job.work) for job in self._on_time if not _budgeted(job.entry))
        self._plan.plan(self._now_s, self._rate.value, stages, others)
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
        changed = self._job_shares.refresh(self._now_s, self._rate.value, len(self._relegated) > 0)
        for entry in [job.entry for job in self._on_time if job.entry.request.tenant in changed] if changed else ():
            self._on_time.remove(entry)
            self._add(entry)

    def late(self) -> Sequence[QueueEntry]:
        return list(islice(self._late, self._config.retired))

    def promise_s(self, entry: QueueEntry) -> float:
        """Returns the seconds after which the queued `entry`, if refused now, may come again and is then given up last.

        By then enough of the waiting work with a lower price is done for it to be on time, and `promised_share` of the
        rate has room for it beside all other requests with a promise (generic cell rate algorithm).
        """
        job, rate = self._job(entry), self._rate.value
        before = sum(other.work for other in self._on_time if other.price < job.price)
        slack_s = self._latest_start_s(entry) - entry.request.arrival_s
        self._promised_s = max(self._promised_s, self._now_s) + job.work / (self._config.promised_share * rate)
        return max(0.0, before / rate - slack_s, self._promised_s - self._now_s - self._config.promised_ahead_s)

    # --- the topology

    def push(self, entry: QueueEntry) -> None:
        if entry.relegated:
            job = self._job(entry)
            self._relegated.add(entry, job.work)
            self._late.push(job.price, entry)
            return
        work = self._add(entry)
        if _budgeted(entry):
            self._plan.add(entry)
            self._job_shares.waits(self._now_s, entry.request.tenant)
            if self._plan.gives_up(entry):
                self._set_aside(self._on_time.remove(entry))
        if entry.seq > self._newest:
            self._newest = entry.seq
            self._surges.add(entry.enqueued_s, work)

    def peek(self) -> QueueEntry | None:
        return self._relegated.claimant() or self._best()

    def pop(self) -> QueueEntry | None:
        claimant = self._relegated.claimant()
        entry = claimant or self._best()
        if entry is None:
            return None
        first = self._on_time.first()
        work, entry.urgency = self._take(entry)
        if first is not None and not entry.relegated:
            entry.urgency = min(entry.urgency, first.place[0])  # it goes before that one
        entry.charged = 0.0
        if claimant is not None:
            self._relegated.spend(work)
        else:
            self._relegated.earn(self._now_s, work)
        self._rate.add(work)
        if _budgeted(entry) or len(self._job_shares):  # what is served beside jobs counts, too
            self._job_shares.served(self._now_s, entry.request.tenant, entry.request.weight, work)
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
            if _budgeted(entry):
                self._plan.add(entry)
        self._next = None
        self._on_time.refill(self._jobs(waiting))

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        request = entry.request
        self._served.add(self._now_s, request.tenant, request.weight, max(0.0, tokens - entry.charged))
        self._floods.clear()
        entry.charged = tokens

    def _take(self, entry: QueueEntry) -> tuple[float, float]:
        """Takes `entry` out and returns its work and its rank; relegated entries rank behind all others."""
        self._plan.remove(entry)
        if entry in self._on_time:
            self._next = None
            job = self._on_time.remove(entry)
            return job.work, job.place[0]
        work = self._relegated.remove(entry)
        next(heap for heap in (self._spare, self._shelved, self._late) if entry in heap).remove(entry)
        return work, RELEGATED_RANK + entry.request.arrival_s

    def _mark_idle(self) -> None:
        if not len(self):
            self._rate.ran_dry()

    def _best(self) -> QueueEntry | None:
        job = self._first()
        if job is not None:
            return job.entry
        set_aside = [entry for heap in (self._spare, self._shelved) if (entry := heap.peek()) is not None]
        return min(set_aside, key=_place, default=None) or self._late.peek()

    def _first(self) -> Job | None:
        """Returns the planned job that goes first: the shortest of those that leave the others their slack."""
        if len(self._on_time) < 2:
            return self._on_time.first()
        if self._next is None:
            self._next = self._on_time.quickest(self._now_s, self._planned_rate, self._share, self._config.looked)
        return self._next

    def _add(self, entry: QueueEntry) -> float:
        """Plans `entry` to be on time and returns its work."""
        self._next = None
        job = self._job(entry)
        self._on_time.add(job)
        return job.work


def _budgeted(entry: QueueEntry) -> bool:
    return entry.request.job is not None and entry.request.job.left_s is not None


def _place(entry: QueueEntry) -> Place:
    assert entry.place is not None
    return entry.place

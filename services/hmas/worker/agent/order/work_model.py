"""What a request takes up of the engines, when that must be done, and what it is worth.

- Server: all engines together. The work of a request is the engine time that it takes up: what its prompt adds to the
  steps, and for each output token the share of a step that its sequence slot stands for or, where memory or the time
  of a step is scarcer than slots, its part of that. Engines work at a rate of about 1 each; the rate is measured while
  requests wait, and only `headroom` of it is planned with, because more requests are still to come.
- Due: a request must be done by the latest start that meets its TTFT, plus its own work at that rate. TPOT is kept by
  the pump's prefill window and by the limits in force.
- Decoding outlasts the plan: while slots or memory are scarce, a long answer delays the requests that come later. So
  the order is by latest start plus `patience` times the time that the answer takes, in proportion to how full the
  engines are, and to its part of what is scarce over that of the sequences that run.
- Utility: value = tenant's weight * weight of its type * 2^-priority (H-MAS Eq. 1).
- With the hint `by_tokens`, value is that times what ESG (Eq. 6) loses if the request is set aside: its service tokens
  less the part SLO / TTLT of them that ESG still counts when it is served `set_aside_s` late. ESG counts until the last
  token, so a request may start later than its TTFT asks, yet only by `esg_spare` of the time that its last token would
  allow, because a plan of minutes is worth little with lengths that are guesses.
- Of a job with a budget the price is the work of all that it still needs, and its stages go by the instant at which
  their job is due, behind no request that must start before that.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from hmas.worker.agent.engines.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.fairness import YIELDED_S, Fairness
from hmas.worker.agent.order.job_plan import budgeted
from hmas.worker.agent.order.planned_work import PlannedWork
from hmas.worker.agent.order.service_rate import ServiceRate, ServiceRateConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkModelConfig:
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
    priority_span: int = 8  # priorities above it, or below its negative, count as that
    rate: ServiceRateConfig = field(default_factory=ServiceRateConfig)


class WorkModel:
    """The work, price and due time of queued requests, by what was seen of the engines. `by_tokens`: the objective is
    ESG. `planned_rate` is the rate that is planned with."""

    __slots__ = (
        "_by_tokens", "_config", "_context_s", "_fairness", "_floor_s", "_fullness", "_kv_tokens", "_memory_lead",
        "_room_s", "_slots", "_typical", "_wait_s", "planned_rate", "rate",
    )  # fmt: skip

    def __init__(self, config: WorkModelConfig, fairness: Fairness, *, by_tokens: bool) -> None:
        self._config = config
        self._fairness = fairness
        self._by_tokens = by_tokens
        self.rate = ServiceRate(config.rate)
        self.planned_rate = config.headroom * config.rate.cold_rate
        self._floor_s = 0.0
        self._fullness = 0.0
        self._wait_s = 0.0  # from the grant until an engine begins with a prompt, as it was lately
        self._slots = config.default_slots
        self._kv_tokens = 0
        self._typical = float(config.default_slots)
        self._context_s = 0.0  # of a step, for each token of context; of an engine, in the mean
        self._room_s = inf  # of its time for sequences
        self._memory_lead = 0.0  # by how much more of the memory is in use than of the slots

    def job(self, entry: QueueEntry) -> PlannedWork:
        (job,) = self.jobs((entry,))
        return job

    def jobs(self, entries: Iterable[QueueEntry]) -> Iterator[PlannedWork]:
        """Makes the job of each of `entries`; what they have in common is computed once, as a switch of topology brings
        the whole queue."""
        floor_s, rate, fairness = self._floor_s, self.planned_rate, self._fairness
        patience, slot = self._config.patience * self._fullness * self._typical, 1.0 / self._slots
        kv_tokens = self._kv_tokens if self._memory_lead > 0.0 else 0
        latest_start_s, value_of = self.latest_start_s, self.value
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
            flood = fairness.flood(tenant)
            start_s = latest_start_s(entry)
            yielding = fairness.yielding(tenant)
            flood = max(flood, yielding)
            price, key = work, start_s + patience * decode
            passes = flood <= 1.0 and not fairness.job_shares.leads(tenant)
            if (job := entry.request.job) is not None and job.left_s is not None:
                price += entry.future_s - (1.0 - share) * job.future_output_tokens * entry.tpot_s
                key, passes = entry.request.arrival_s + job.left_s, False
                flood = yielding
            if yielding > 1.0:
                key += YIELDED_S
            price = 0.0 if entry.promised else price / value_of(entry) * flood
            yield PlannedWork(entry, key, start_s + work / rate, work, price, passes=passes)

    def latest_start_s(self, entry: QueueEntry) -> float:
        """Returns the instant by which the request must be granted to be on time."""
        if budgeted(entry):  # its forecast is one of hope, and a job once given up has wasted what it took
            return entry.ttft_deadline_s - entry.prefill_s
        start_s = entry.ttft_deadline_s - entry.prefill_s - self._wait_s
        return start_s + self._config.esg_spare * (entry.slack_s - start_s) if self._by_tokens else start_s

    def value(self, entry: QueueEntry) -> float:
        """Returns what it is worth that the request is on time, above 0."""
        priority = entry.request.priority
        span = self._config.priority_span
        if not -span <= priority <= span:
            priority = span if priority > 0 else -span
        value = float(entry.utility * 2.0**-priority)
        if not self._by_tokens:
            return value
        late_s = self._config.set_aside_s
        return value * entry.service * late_s / (late_s + entry.deadline_s - entry.request.arrival_s)

    def see(self, view: ServiceView) -> None:
        """Takes over how full the engines are, and measures their rate."""
        self._floor_s = view.prefill_floor_s
        if view.engines:
            self._see_engines(view.engines)
        self.rate.observe(view.now_s)

    def _see_engines(self, engines: Sequence[EngineOccupancy]) -> None:
        config = self._config
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
        self.rate.engines = len(engines)
        self.rate.most = sum(max(1.0, engine.prefill_pace) for engine in engines)
        self._wait_s = sum(engine.prefill_wait_s for engine in engines) / len(engines)

    def _see_steps(self, engines: Sequence[EngineOccupancy]) -> None:
        """Takes the mean of what a token of context costs in the engines' steps, and of the time that these have."""
        count = len(engines)
        self._room_s = sum(engine.room_s for engine in engines) / count
        self._context_s = sum(engine.step.context_s for engine in engines if engine.step is not None) / count

    def replan(self) -> None:
        """Plans with the measured rate from now on, if it is not nearly the one that is planned with."""
        rate = self._config.headroom * self.rate.value
        if abs(rate - self.planned_rate) > self._config.replanned * self.planned_rate:  # seldom: a new one costs
            self.planned_rate = rate

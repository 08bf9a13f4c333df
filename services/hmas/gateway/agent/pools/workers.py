"""What a gateway knows of one worker: its last report, and what was sent to it since."""

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import NamedTuple

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import Load
from hmas.contracts.registry import WorkerHeartbeat
from hmas.laws.least import LeastLately

STEP_MEMORY_S = 10.0  # time constant with which a worker's shortest step is forgotten


class ExpectedHit(NamedTuple):
    """What a request's worker was taken to hold of its prompt: the share of it, and the epoch of its last use there."""

    share: float
    epoch: int


@dataclass(slots=True)
class Sending:
    """A request sent to a worker that the worker's last report does not count yet.

    `at_s`: when it was sent. `tokens`: of its prompt. `cost_s`: predicted engine time over the worker's engines.
    `waiting`: it was not granted.
    """

    at_s: float
    tokens: int
    cost_s: float
    waiting: bool = True


@dataclass(slots=True)
class Appraisal:
    """What a worker is compared by.

    `room`: the prompt tokens of the largest request that fits its bounds, below 0 if none does. `alive_s`: when it was
    last heard of, -inf without a working engine. `wait_s`: the seconds until a request that comes now is computed;
    `drain_s`: those until all that it has is served. `requests`: how many it has; `load`: that number over its slots;
    `waiting`: how many of them wait, for each of its working engines.
    """

    room: float
    alive_s: float
    wait_s: float
    drain_s: float
    requests: int
    load: float
    waiting: float


@dataclass(slots=True, kw_only=True)
class KnownWorker:
    """What this gateway knows of a worker; the fields from `queued` to `draining` are from the last report.

    `engines_up` are its working engines: those that are up and awake. `asleep`: it has none because they sleep.
    `slots`: the most sequences that its working engines run. `step`: the shortest step in s that `Load` told lately; 0
    if it last told 0. `holder`: its number in the index of prefixes. `pending` are the predicted prefill times in s of
    the requests with known prompts that this gateway sent there and that have no first token, and `pending_s` their
    sum.
    `most_queued` and `most_tokens` are the heartbeat's bounds on its queue; inf: none.
    `kinds` are those of its engines that are up, by which costs are predicted (`hmas.laws.kind_costs.kinds_of`).
    `classes` are the pace classes of its engines that are up, none where the layout is mixed.
    `requests` counts this gateway's own requests there. `sendings` are those not in the last report, and `sent_*` their
    sums. `last_sent` is the number of the last request sent there, counted over all workers. `shares`: by engine, how
    many requests this gateway may place there while the worker is silent, which it is since `silent_since_s`; inf while
    its stream is open.
    """

    heartbeat: WorkerHeartbeat
    heard_s: float
    engines_up: int = 0
    asleep: bool = False
    kinds: tuple[EngineKind, ...] = ()
    classes: frozenset[int] = frozenset()
    queued: int = 0
    queued_tokens: int = 0
    running: int = 0
    backlog_s: float = 0.0
    draining: bool = False
    requests: int = 0
    last_sent: int = 0
    sendings: dict[str, Sending] = field(default_factory=dict)
    sent_s: float = 0.0
    sent_queued: int = 0
    sent_tokens: int = 0
    silent_since_s: float = inf
    shares: dict[str, int] = field(default_factory=dict)
    slots: int = 0
    step: LeastLately = field(default_factory=partial(LeastLately, STEP_MEMORY_S))
    holder: int = -1
    pending: dict[str, float] = field(default_factory=dict)
    pending_s: float = 0.0
    most_queued: float = inf
    most_tokens: float = inf
    appraisal: Appraisal | None = None
    usable: bool = False

    @property
    def name(self) -> str:
        return self.heartbeat.worker

    @property
    def predicted_backlog_s(self) -> float:
        return self.backlog_s + self.sent_s

    def has_room(self, tokens: int) -> bool:
        """Returns whether one more request of `tokens` prompt tokens fits the bounds on queued requests and queued
        tokens that the worker's heartbeat states; a bound of 0 means none."""
        fits = self.queued + self.sent_queued < self.most_queued
        return fits and self.queued_tokens + self.sent_tokens + tokens <= self.most_tokens

    def bound(self) -> None:
        """Takes over the bounds of the heartbeat."""
        self.appraisal = None
        self.most_queued = self.heartbeat.max_queued if self.heartbeat.max_queued > 0 else inf
        self.most_tokens = self.heartbeat.max_queued_tokens if self.heartbeat.max_queued_tokens > 0 else inf

    def report(self, now_s: float, load: WorkerHeartbeat | Load, lag_s: float) -> None:
        """Takes over the load that the worker reports. Requests sent more than `lag_s` seconds ago are counted in the
        report, so that they are no longer added to it."""
        self.heard_s, self.appraisal = now_s, None
        self.queued, self.queued_tokens, self.running = load.queued, load.queued_tokens, load.running
        self.backlog_s, self.draining = load.backlog_s, load.draining
        for request_id in [i for i, sending in self.sendings.items() if sending.at_s <= now_s - lag_s]:
            self.forget(request_id)

    def see_step(self, now_s: float, step_s: float) -> None:
        """Learns from a step's time. One that computes prompts takes longer, which passes and is counted as backlog, so
        that only what even the shortest steps take tells that a worker is slow."""
        if step_s > 0.0:
            self.step.see(now_s, step_s)
        else:
            self.step.clear()

    def remember(self, request_id: str, sending: Sending) -> None:
        self.forget(request_id)
        self.appraisal = None
        self.sendings[request_id] = sending
        self.sent_s += sending.cost_s
        self.sent_queued += sending.waiting
        self.sent_tokens += sending.tokens if sending.waiting else 0

    def dequeue(self, request_id: str, tokens: int) -> None:
        """Records that the request no longer waits in the worker's queue, whether the last report counts it or not."""
        self.appraisal = None
        sending = self.sendings.get(request_id)
        if sending is None:
            self.queued, self.queued_tokens = max(0, self.queued - 1), max(0, self.queued_tokens - tokens)
        elif sending.waiting:
            sending.waiting = False
            self.sent_queued -= 1
            self.sent_tokens -= sending.tokens

    def withdraw(self, request_id: str, tokens: int, cost_s: float) -> None:
        """Records that a waiting request was taken from the worker."""
        self.dequeue(request_id, tokens)
        if request_id in self.sendings:
            self.forget(request_id)
        else:
            self.backlog_s = max(0.0, self.backlog_s - cost_s)

    def recost(self, request_id: str, cost_s: float) -> None:
        sending = self.sendings.get(request_id)
        if sending is not None:
            self.appraisal = None
            self.sent_s += cost_s - sending.cost_s
            sending.cost_s = cost_s

    def forget(self, request_id: str) -> None:
        """Stops adding a request to the reported load: the report counts it now, or the worker no longer has it."""
        sending = self.sendings.pop(request_id, None)
        if sending is None:
            return
        self.appraisal = None
        self.sent_s -= sending.cost_s
        if sending.waiting:
            self.sent_queued -= 1
            self.sent_tokens -= sending.tokens
        if not self.sendings:
            self.sent_s = 0.0  # rounding errors must not add up

    def appraise(self) -> Appraisal:
        """Computes anew what the worker is compared by. A request that comes now is computed after the queued part of
        the backlog and the prompts before it. Most of many workers do not change from choice to choice."""
        queued, running, backlog_s, sent_s = self.queued, self.running, self.backlog_s, self.sent_s
        wait_s = self.pending_s / self.engines_up if self.pending_s and self.engines_up else 0.0
        if queued:
            wait_s += backlog_s * queued / (queued + running)
        if sent_s:
            backlog_s += sent_s / (running or 1)
        count = queued + running + len(self.sendings)
        room = self.most_tokens - self.queued_tokens - self.sent_tokens if self.has_room(0) else -1
        self.appraisal = found = Appraisal(
            room,
            self.heard_s if self.engines_up else -inf,
            wait_s,
            backlog_s,
            count,
            count / (self.slots or 1),
            queued / (self.engines_up or 1),
        )
        return found

    def expect(self, request_id: str, prefill_s: float) -> None:
        """Records that a request's prefill is to come."""
        self.computed(request_id)
        self.appraisal = None
        self.pending[request_id] = prefill_s
        self.pending_s += prefill_s

    def computed(self, request_id: str) -> None:
        """Records that a request's prefill is done, or will not be done here."""
        self.appraisal = None
        self.pending_s -= self.pending.pop(request_id, 0.0)
        if not self.pending:
            self.pending_s = 0.0  # rounding errors must not add up

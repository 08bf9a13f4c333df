"""What the console keeps of what it hears: the newest values, as `hmas top` does, and their recent past, all of it
bounded. Nothing here knows a clock; `now_s` is Unix time in s and never runs backwards."""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from hmas.console.lane_spans import LaneSpan, lane_spans
from hmas.console.overdue import UnansweredRequests
from hmas.console.question import WhatIfBook
from hmas.console.window_count import WindowCount
from hmas.contracts.control import AuditRecord, ControlTuple, LayoutDecision, TopologyDecision
from hmas.contracts.job import JobRow
from hmas.contracts.outcome import Outcome
from hmas.contracts.pool_plan import PlanDecision
from hmas.contracts.queue import QueueReply
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.contracts.telemetry import EngineSample, GatewayTelemetry, RequestSettled, WorkerTelemetry
from hmas.contracts.views import VLong, VShort
from hmas.laws.scoring import verdict
from hmas.operator.mesh_view import MeshView

SAMPLE_S = 2.0
POINTS = 300  # of a curve: ten minutes
STEPS = 3  # consecutive points of a curve over which the share of requests in time is averaged
WINDOW_S = SAMPLE_S * POINTS
MAX_CURVES = 128  # pools and engines whose past is kept
POOL_LOST_S = 60.0  # after which a pool that nobody tells of makes room for a new one
MAX_SEGMENTS = 200  # of topologies, over all pools
MAX_FLAGS = 200
MAX_SPANS = 600
SPANS_S = 60.0  # for which the requests that ended are counted
MAX_RECENT = 60
MAX_REASONS = 2000  # pairs of tenant and reason in the window, and of tenant and fate of a promise
MAX_PENDING = 20_000  # dispatched requests whose end has not been heard
MAX_QUEUES = 8  # workers' queues and orders of them that are looked at at a time
PAUSE_S = 0.75  # of a worker's telemetry, which comes every 0.1 s: it may have been started anew
KEPT_S = 5.0  # how long an answer is kept after a browser last asked for it
TOLD_CHARS = 300  # of a name or reason of another process

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = TypeVar("P", bound=tuple[float, ...])


class PromiseFate(StrEnum):
    """What became of the times that refused requests were told to come back at. A promise that nobody came back for is
    in `made` alone."""

    MADE = "made"
    KEPT = "kept"  # its request came back in time, and was served within its SLO
    LATE = "late"  # it came back in time, and was served late or failed
    REFUSED_AGAIN = "refused again"


class LoadPoint(NamedTuple):
    """A pool at an instant, Unix s: rates per second, counts, and `missed`, the share of settled requests in the last
    seconds that missed their SLO."""

    at_s: float
    offered_rps: float
    in_time_rps: float
    waiting: int
    running: int
    missed: float
    overdue: int  # of those that wait for their first token, the ones that are past its deadline


@dataclass(slots=True, kw_only=True)
class Segment:
    """A stretch of time in which one decision about a pool's topology held."""

    number: int
    pool: str
    from_s: float
    until_s: float  # when the decision was last repeated
    topology: str
    bypass: bool
    selector: str
    reason: str
    predicted: float | None = None  # the difference of the share on time that a rehearsal predicted
    observed: float | None = None  # and the one that was seen

    def holds(self, decision: TopologyDecision) -> bool:
        return (self.topology, self.bypass, self.selector, self.reason) == (
            decision.topology.value, decision.bypass, decision.selector, decision.reason[:TOLD_CHARS],
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A decision that meta or Statera told its reason of, other than a change of set-points."""

    number: int
    at_s: float
    record: AuditRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRequest:
    """A request that settled, and whether it met its SLO; `judged` is false where that is not asked."""

    at_s: float
    pool: str
    settled: RequestSettled
    ok: bool
    judged: bool


@dataclass(slots=True)
class Liveness:
    """When a worker was heard last, and when it last came back as another process. Telemetry does not say which process
    sends it: after a pause it ends the silence only once a heartbeat has come."""

    heard_s: float = 0.0
    silent_from_s: float | None = None  # as long as it is not known who broke the silence
    incarnation: str = ""
    restarted_s: float = float("-inf")

    def reported(self, now_s: float) -> None:
        if self.silent_from_s is None and self.incarnation and now_s - self.heard_s > PAUSE_S:
            self.silent_from_s = self.heard_s
        self.heard_s = now_s

    def beat(self, now_s: float, incarnation: str) -> None:
        if self.incarnation not in ("", incarnation):
            self.restarted_s = now_s
        self.heard_s, self.silent_from_s, self.incarnation = now_s, None, incarnation

    def silent_s(self, now_s: float) -> float:
        return now_s - (self.heard_s if self.silent_from_s is None else self.silent_from_s)


@dataclass(frozen=True, slots=True)
class Asked(Generic[V]):
    """What was asked of the mesh for those who look at a page, and when it came; None: there was no answer."""

    at_s: float
    told: V | None


@dataclass(slots=True)
class ConsoleState:
    """The console's memory. `hear` takes each message as it arrives, `sample` is called every `SAMPLE_S`."""

    top: MeshView = field(default_factory=MeshView)
    alive: dict[str, Liveness] = field(default_factory=dict)
    load: dict[str, deque[LoadPoint]] = field(default_factory=dict)
    loops: dict[tuple[str, str], deque[tuple[float, ...]]] = field(default_factory=dict)
    segments: deque[Segment] = field(default_factory=lambda: deque(maxlen=MAX_SEGMENTS))
    flags: deque[Flag] = field(default_factory=lambda: deque(maxlen=MAX_FLAGS))
    spans: deque[LaneSpan] = field(default_factory=lambda: deque(maxlen=MAX_SPANS))
    ends: WindowCount[tuple[str, str]] = field(default_factory=lambda: WindowCount(MAX_REASONS, SPANS_S))  # by engine
    recent: deque[RecentRequest] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    reasons: WindowCount[tuple[str, str, Outcome]] = field(default_factory=lambda: WindowCount(MAX_REASONS, WINDOW_S))
    promises: WindowCount[tuple[str, str, PromiseFate]] = field(
        default_factory=lambda: WindowCount(MAX_REASONS, WINDOW_S)
    )
    # By worker: whether an answer stayed within the bound that the fence reserved for it.
    kept_bounds: WindowCount[tuple[str, bool]] = field(default_factory=lambda: WindowCount(2 * MAX_CURVES, WINDOW_S))
    queues: dict[tuple[str, str], Asked[QueueReply]] = field(default_factory=dict)  # by worker and other topology
    jobs: Asked[list[JobRow]] | None = None
    open: UnansweredRequests = field(default_factory=UnansweredRequests)
    whatif: WhatIfBook = field(default_factory=WhatIfBook)
    connected: bool = True  # whether the console itself reaches NATS
    numbers: int = 0
    _pools: dict[str, float] = field(default_factory=dict)  # when each was last heard of
    _current: dict[str, Segment] = field(default_factory=dict)
    _rehearsed: dict[str, AuditRecord] = field(default_factory=dict)  # by pool: of a switch that is not heard of yet
    _waited: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _in_time: dict[str, deque[int]] = field(default_factory=dict)  # by pool: requests in the last steps of the curve

    def hear(
        self,
        now_s: float,
        value: WorkerHeartbeat | WorkerTelemetry | GatewayTelemetry | VShort | VLong | TopologyDecision
        | LayoutDecision | PlanDecision | SchedulingGain | ControlTuple | AuditRecord,
    ) -> None:  # fmt: skip
        if isinstance(value, GatewayTelemetry):
            self._settle(now_s, value)
            return
        if isinstance(value, VShort | VLong | TopologyDecision | LayoutDecision | SchedulingGain) and not self._knows(
            now_s, value.pool
        ):
            return
        self.top.hear(now_s, value)
        match value:
            case WorkerHeartbeat():
                self._beat(now_s, value)
            case WorkerTelemetry():
                self._live(value.worker).reported(now_s)
                self._ran(now_s, value)
            case TopologyDecision():
                self._decided(now_s, value)
            case AuditRecord():
                self._audited(now_s, value)
            case _:
                pass

    def _knows(self, now_s: float, pool: str) -> bool:
        """Notes that a pool was heard of; returns False if there are too many already that are heard of."""
        if pool not in self._pools and len(self._pools) >= MAX_CURVES:
            quiet = min(self._pools, key=lambda name: self._pools[name])
            if now_s - self._pools[quiet] < POOL_LOST_S:
                return False
            top = self.top
            for kept in (
                self._pools, top.short, top.long, top.decisions, top.layouts, top.gains, self.load, self._current,
                self._rehearsed, self._in_time,
            ):  # fmt: skip
                kept.pop(quiet, None)
        self._pools[pool] = now_s
        return True

    def take_queue(self, now_s: float, worker: str, topology: str, told: QueueReply | None) -> None:
        """Takes the answer to what was asked of a worker's queue."""
        self.queues[worker, topology] = Asked(now_s, told)
        while len(self.queues) > MAX_QUEUES:
            del self.queues[min(self.queues, key=lambda key: self.queues[key].at_s)]

    def sample(self, now_s: float) -> None:
        """Adds a point to every curve, and forgets what nobody looks at."""
        self.queues = {key: asked for key, asked in self.queues.items() if now_s - asked.at_s < KEPT_S}
        if self.jobs is not None and now_s - self.jobs.at_s > KEPT_S:
            self.jobs = None
        overdue = self.open.overdue(now_s)
        for pool, short in self.top.short.items():
            point = LoadPoint(
                now_s, short.arrival_rps, self._in_time_rps(pool), short.queued, short.running, short.violation_rate,
                overdue[pool].total(),
            )  # fmt: skip
            self._point(self.load, pool, point)
        for worker, row in self.top.workers.items():
            for engine in row.telemetry.engines if row.telemetry else ():
                low, high = self._band(worker, engine)
                self._point(
                    self.loops,
                    (worker, engine.engine),
                    (now_s, engine.utilisation, low, high, engine.n_run, engine.b_token),
                )
        self.reasons.expire(now_s)
        self.promises.expire(now_s)
        self.kept_bounds.expire(now_s)
        self.ends.expire(now_s)

    def _in_time_rps(self, pool: str) -> float:
        """Returns the requests that were served in time per second, over about as long as V_short spans."""
        counts = self._in_time.setdefault(pool, deque([0], maxlen=STEPS))
        rps = sum(counts) / (SAMPLE_S * len(counts))
        counts.append(0)
        return rps

    def _band(self, worker: str, engine: EngineSample) -> tuple[float, float]:
        control = self.top.workers[worker].control
        for each in control.engines if control else ():
            if each.engine == engine.engine:
                return each.u_low, each.u_high
        return 0.0, 0.0

    def _point(self, curves: dict[K, deque[P]], key: K, point: P) -> None:
        if key not in curves:
            if len(curves) >= MAX_CURVES:
                del curves[min(curves, key=lambda name: curves[name][-1][0])]
            curves[key] = deque(maxlen=POINTS)
        curves[key].append(point)

    def _next(self) -> int:
        self.numbers += 1
        return self.numbers

    def _live(self, worker: str) -> Liveness:
        for gone in self.alive.keys() - self.top.workers.keys():
            del self.alive[gone]
        return self.alive.setdefault(worker, Liveness())

    def _beat(self, now_s: float, heartbeat: WorkerHeartbeat) -> None:
        self._live(heartbeat.worker).beat(now_s, heartbeat.incarnation)

    def _decided(self, now_s: float, decision: TopologyDecision) -> None:
        current = self._current.get(decision.pool)
        if current is not None:
            current.until_s = now_s
            if current.holds(decision):
                return
        segment = Segment(
            number=self._next(), pool=decision.pool, from_s=now_s, until_s=now_s, topology=decision.topology.value,
            bypass=decision.bypass, selector=decision.selector, reason=decision.reason[:TOLD_CHARS],
        )  # fmt: skip
        self._current[decision.pool] = segment
        self.segments.append(segment)
        rehearsed = self._rehearsed.pop(decision.pool, None)
        if rehearsed is not None and rehearsed.decision == segment.topology:
            segment.predicted = rehearsed.predicted_gain

    def _audited(self, now_s: float, record: AuditRecord) -> None:
        """Keeps a decision as a flag, and what a rehearsal predicted of a switch, and what came of it, with the switch.
        The record of a switch may come before the decision itself or after it."""
        if record.kind not in ("decided", "tuple"):
            self.flags.append(Flag(number=self._next(), at_s=now_s, record=record))
        if record.kind == "decided" and record.predicted_gain is not None and self._knows(now_s, record.pool):
            current = self._current.get(record.pool)
            if current is not None and current.topology == record.decision:
                current.predicted = record.predicted_gain
            else:
                self._rehearsed[record.pool] = record
        if record.kind == "outcome":
            foretold = (s for s in reversed(self.segments) if s.pool == record.pool and s.predicted is not None)
            switch = next(foretold, None)
            if switch is not None and switch.topology == record.decision:
                switch.observed = record.observed_gain

    def in_force(self, pool: str) -> Segment | None:
        return self._current.get(pool)

    def _ran(self, now_s: float, telemetry: WorkerTelemetry) -> None:
        for first in telemetry.first_tokens:
            self.open.first_token(first.request_id)
        for dispatched in telemetry.dispatched:
            self._waited[dispatched.request_id] = dispatched.waited_s
            if len(self._waited) > MAX_PENDING:
                self._waited.popitem(last=False)
        for ended in telemetry.finished:
            waited_s = self._waited.pop(ended.request_id, 0.0)
            if not ended.engine:
                continue
            if ended.upper_output_tokens > 0.0 and not ended.censored:
                self.kept_bounds.add(now_s, (telemetry.worker, ended.output_tokens <= ended.upper_output_tokens))
            ended_s = now_s - ended.age_s
            for span in lane_spans(self._next, telemetry.worker, ended, ended_s, waited_s):
                self.spans.append(span)
                self.ends.add(now_s, (telemetry.worker, span.engine))

    def _settle(self, now_s: float, told: GatewayTelemetry) -> None:
        for offered in told.offered:
            self.open.offered(now_s, told.pool, offered)
        for settled in told.settled:
            self.open.settled(settled.request_id)
            said = verdict(settled)
            self.recent.append(
                RecentRequest(
                    at_s=now_s - settled.age_s, pool=told.pool, settled=settled, ok=said.ok, judged=said.judged
                )
            )
            if said.judged and said.ok and told.pool in self.top.short:
                self._in_time.setdefault(told.pool, deque([0], maxlen=STEPS))[-1] += 1
            if settled.outcome is not Outcome.FINISHED:
                self.reasons.add(now_s, (told.pool, settled.tenant, settled.outcome))
            for fate in _fates(settled, said.ok):
                self.promises.add(now_s, (told.pool, settled.tenant, fate))


def _fates(settled: RequestSettled, ok: bool) -> Iterator[PromiseFate]:
    """Yields what a settled request says of promises: of the one that it came back for, and of the one that its refusal
    made."""
    refused = settled.outcome is Outcome.SLO_UNREACHABLE
    if settled.promised and settled.outcome is not Outcome.CANCELLED:
        yield PromiseFate.KEPT if ok else PromiseFate.REFUSED_AGAIN if refused else PromiseFate.LATE
    if refused:
        yield PromiseFate.MADE

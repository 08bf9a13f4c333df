"""The state that `hmas top` shows: the newest value of each subject, and recent changes of topology and controls."""

from collections import deque
from dataclasses import dataclass, field

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.control import MIXED, AuditRecord, ControlTuple, Layout, LayoutDecision, TopologyDecision
from hmas.contracts.job import JobRow
from hmas.contracts.pool_plan import PlanDecision
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.views import VLong, VShort
from hmas.laws.layout import described

CHANGES_KEPT = 12
MAX_SHOWN_WORKERS = 512
GAIN_KEPT_S = 900.0  # what scheduling would bring is told each minute, or more rarely where simulating takes long


@dataclass(slots=True)
class WorkerRow:
    """The newest values of one worker. `heard_s` is when its last heartbeat came, on the local monotonic clock."""

    heartbeat: WorkerHeartbeat | None = None
    telemetry: WorkerTelemetry | None = None
    control: ControlTuple | None = None
    heard_s: float = 0.0

    def lost(self, now_s: float) -> bool:
        return now_s - self.heard_s > WORKER_LOST_AFTER_S


@dataclass(slots=True)
class MeshView:
    """The newest values by worker and by pool; `hear` takes each value as it arrives.

    At most `MAX_SHOWN_WORKERS` workers are kept. `changes` holds (time in s, pool or worker, text), oldest first.
    """

    workers: dict[str, WorkerRow] = field(default_factory=dict)
    short: dict[str, VShort] = field(default_factory=dict)
    long: dict[str, VLong] = field(default_factory=dict)
    decisions: dict[str, TopologyDecision] = field(default_factory=dict)
    layouts: dict[str, LayoutDecision] = field(default_factory=dict)
    gains: dict[str, tuple[float, SchedulingGain]] = field(default_factory=dict)  # by pool, each with when it came, s
    plan: PlanDecision | None = None  # None: there is no catalogue to plan with, or it was not heard of yet
    jobs: list[JobRow] | None = None  # as gateways last told; None: none has been asked
    changes: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=CHANGES_KEPT))

    def hear(
        self,
        now_s: float,
        value: WorkerHeartbeat | WorkerTelemetry | VShort | VLong | TopologyDecision | LayoutDecision | ControlTuple
        | PlanDecision | SchedulingGain | AuditRecord,
    ) -> None:  # fmt: skip
        match value:
            case WorkerHeartbeat():
                row = self._row(value.worker)
                row.heartbeat, row.heard_s = value, now_s
            case WorkerTelemetry():
                self._row(value.worker).telemetry = value
            case VShort():
                self.short[value.pool] = value
            case VLong():
                self.long[value.pool] = value
            case TopologyDecision():
                self._hear_decision(now_s, value)
            case LayoutDecision():
                self._hear_layout(now_s, value)
            case SchedulingGain():
                self.gains[value.pool] = (now_s, value)
                if len(self.gains) > MAX_SHOWN_WORKERS:
                    del self.gains[min(self.gains, key=lambda pool: self.gains[pool][0])]
            case PlanDecision():
                self.plan = value
            case ControlTuple():
                self._hear_tuple(now_s, value)
            case AuditRecord():
                if value.kind not in ("decided", "layout", "tuple"):  # these show as the change of topology or controls
                    self.changes.append((now_s, value.pool, f"{value.kind}: {value.decision} ({value.reason})"))

    def _row(self, worker: str) -> WorkerRow:
        if worker not in self.workers and len(self.workers) >= MAX_SHOWN_WORKERS:
            oldest = min(self.workers, key=lambda name: self.workers[name].heard_s)
            del self.workers[oldest]
        return self.workers.setdefault(worker, WorkerRow())

    def _hear_decision(self, now_s: float, decision: TopologyDecision) -> None:
        before, layout = self.decisions.get(decision.pool), self.layout(decision.pool)
        self.decisions[decision.pool] = decision
        if before is None or (before.topology, before.bypass) != (decision.topology, decision.bypass):
            was = f"{before.topology} → " if before else ""
            mark = " BYPASS" if decision.bypass else ""
            text = f"topology {was}{decision.topology}{mark} by {decision.selector}: {decision.reason}"
            self.changes.append((now_s, decision.pool, text))
        self._compare_layout(now_s, decision.pool, layout)

    def _hear_layout(self, now_s: float, decision: LayoutDecision) -> None:
        known, layout = decision.pool in self.layouts, self.layout(decision.pool)
        self.layouts[decision.pool] = decision
        if known:
            self._compare_layout(now_s, decision.pool, layout)

    def _compare_layout(self, now_s: float, pool: str, before: Layout) -> None:
        if (layout := self.layout(pool)) != before:
            self.changes.append((now_s, pool, f"layout {described(before)} → {described(layout)}"))

    def observes(self, pool: str) -> bool:
        """Tells whether nothing is in force in a pool, because all of its workers only observe."""
        beats = [row.heartbeat for row in self.workers.values() if row.heartbeat and row.heartbeat.pool == pool]
        return bool(beats) and all(beat.observes for beat in beats)

    def gain(self, now_s: float, pool: str) -> tuple[float, SchedulingGain] | None:
        """Returns how many seconds ago it was last told what scheduling would bring an observed pool, and what; None
        where that was not told, or too long ago."""
        at_s, gain = self.gains.get(pool, (0.0, None))
        if gain is None or not self.observes(pool) or now_s - at_s > GAIN_KEPT_S:
            return None
        return now_s - at_s, gain

    def layout(self, pool: str) -> Layout:
        """Returns the layout in force in a pool, as far as it was heard of: mixed under bypass."""
        decision, topology = self.layouts.get(pool), self.decisions.get(pool)
        return MIXED if decision is None or (topology is not None and topology.bypass) else decision.layout

    def _hear_tuple(self, now_s: float, control: ControlTuple) -> None:
        row = self._row(control.worker)
        before = {e.engine: e for e in row.control.engines} if row.control else {}
        row.control = control
        for engine in control.engines:
            old = before.get(engine.engine)
            if old is not None and (old.n_run, old.b_token) != (engine.n_run, engine.b_token):
                text = f"{engine.engine}: N_run {old.n_run} → {engine.n_run}, B_token {old.b_token} → {engine.b_token}"
                self.changes.append((now_s, control.worker, text))

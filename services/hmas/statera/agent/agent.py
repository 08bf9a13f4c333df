"""The Statera agent, which decides the fence and the concurrency limits of every worker and sends them as control
tuples."""

from typing import assert_never

from hmas.contracts.control import AuditRecord, ControlTuple, TopologyDecision, TopologyReceived
from hmas.contracts.control_agents import (
    EpochGranted,
    EpochLost,
    PublishAudit,
    PublishTuple,
    ShortViewReceived,
    StateraEffect,
    StateraEvent,
    TimerTicked,
    TupleRestored,
    WorkerReported,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.views import VShort, view_json
from hmas.laws.epochs import MAX_SEQ, is_outdated
from hmas.statera.agent.band import Band
from hmas.statera.agent.config import StateraConfig
from hmas.statera.agent.fence import FenceCalibration
from hmas.statera.agent.workers import WorkerControl


class _Pool:
    """What the workers of a pool share: the fence, and what is known of the pool."""

    def __init__(self, config: StateraConfig, now_s: float) -> None:
        self.calibration = FenceCalibration(config.fence)
        self.view: VShort | None = None
        self.view_s = now_s  # when the last view came; before there is one, when the pool was first heard of
        self.decision: TopologyDecision | None = None
        self.decision_s = now_s

    @property
    def bypass(self) -> bool:
        return self.decision is not None and self.decision.bypass


class StateraAgent:
    """Regulates every worker by control tuples. It learns all the time, and publishes only while it holds an epoch. It
    needs a `TimerTicked` at least every `min_publish_s`."""

    def __init__(self, config: StateraConfig) -> None:
        self._config = config
        self._band = Band(config.band.u_high - config.band.width, config.band.u_high)
        self._pools: dict[str, _Pool] = {}
        self._workers: dict[str, WorkerControl] = {}
        self._last: dict[str, ControlTuple] = {}  # restored tuples of workers whose heartbeat has not come yet
        self._epoch: int | None = None
        self._seq = 0

    def step(self, now_s: float, event: StateraEvent) -> list[StateraEffect]:
        match event:
            case WorkerReported(telemetry):
                self._report(now_s, telemetry)
            case ShortViewReceived(view):
                return self._view(now_s, view)
            case HeartbeatReceived(heartbeat):
                worker = self._workers.get(heartbeat.worker)
                if worker is None:
                    worker = self._workers[heartbeat.worker] = WorkerControl(self._config.band, heartbeat, now_s)
                    if (last := self._last.pop(heartbeat.worker, None)) is not None:
                        worker.adopt(last)
                self._pool(now_s, heartbeat.pool)
                worker.heard(now_s, heartbeat)
            case TopologyReceived(decision):
                self._decided(now_s, decision)
            case TupleRestored(control):
                self._resume(control)
            case EpochGranted(epoch):
                self._epoch = epoch
                return self._publish_due(now_s)
            case EpochLost():
                self._epoch = None
            case TimerTicked():
                self._forget_lost_workers(now_s)
                return self._publish_due(now_s)
            case _:
                assert_never(event)
        return []

    def _pool(self, now_s: float, name: str) -> _Pool:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = _Pool(self._config, now_s)
        return pool

    def _report(self, now_s: float, telemetry: WorkerTelemetry) -> None:
        pool = self._pool(now_s, telemetry.pool)
        for finished in telemetry.finished:
            pool.calibration.finished(now_s, telemetry.worker, finished)
        if telemetry.running:
            pool.calibration.running(now_s, telemetry.worker, telemetry.running)
        worker = self._workers.get(telemetry.worker)
        if worker is not None:
            worker.observe(now_s, telemetry, self._band, follow=self._epoch is None, frozen=pool.bypass)

    def _view(self, now_s: float, view: VShort) -> list[StateraEffect]:
        """The outer loop moves at V_short's cadence, when its own period is over."""
        pool = self._pool(now_s, view.pool)
        if pool.view is not None and is_outdated(view.epoch, pool.view.epoch, pool.view_s, now_s):
            return []
        pool.view, pool.view_s = view, now_s
        if self._epoch is not None and not pool.bypass:
            idle = not (view.queued or view.arrival_rps or view.settled_rps)
            for worker in self._workers.values():
                if worker.pool == view.pool:
                    worker.move(now_s, idle=idle)
        return self._publish_due(now_s)

    def _decided(self, now_s: float, decision: TopologyDecision) -> None:
        pool = self._pool(now_s, decision.pool)
        before = pool.decision
        if before is not None and is_outdated(decision.epoch, before.epoch, pool.decision_s, now_s):
            return
        pool.decision, pool.decision_s = decision, now_s

    def _resume(self, control: ControlTuple) -> None:
        self._seq = max(self._seq, min(control.seq, MAX_SEQ))
        worker = self._workers.get(control.worker)
        if worker is None:
            self._last[control.worker] = control
        elif worker.sent is None:  # a restored tuple is outdated once this copy has sent one itself
            worker.adopt(control)

    def _forget_lost_workers(self, now_s: float) -> None:
        lost = [n for n, w in self._workers.items() if now_s - w.seen_s > self._config.worker_lost_after_s]
        for name in lost:
            self._pools[self._workers.pop(name).pool].calibration.forget_worker(name)
        used = {worker.pool for worker in self._workers.values()}
        horizon = now_s - self._config.pool_forgotten_after_s
        self._pools = {n: p for n, p in self._pools.items() if n in used or p.view_s > horizon}

    def _publish_due(self, now_s: float) -> list[StateraEffect]:
        if self._epoch is None:
            return []
        effects: list[StateraEffect] = []
        for worker in self._workers.values():
            pool = self._pools[worker.pool]
            if now_s - pool.view_s <= self._config.view_stale_s:
                effects += self._publish(now_s, worker, pool)
        return effects

    def _publish(self, now_s: float, worker: WorkerControl, pool: _Pool) -> list[StateraEffect]:
        age_s = float("inf") if worker.sent_s is None else now_s - worker.sent_s
        if age_s < self._config.min_publish_s:
            return []
        content = (worker.controls(self._band), pool.calibration.fence(now_s), pool.bypass)
        if content == worker.sent and age_s < self._config.valid_for_s / 3.0:
            return []
        self._seq += 1
        engines, fence, frozen = content
        control = ControlTuple(
            worker=worker.worker,
            engines=engines,
            fence=fence,
            epoch=self._epoch or 0,
            seq=self._seq,
            valid_for_s=self._config.valid_for_s,
            frozen=frozen,
        )
        effects = [*self._audit_moves(worker, pool, control), PublishTuple(control)]
        worker.sent, worker.sent_s = content, now_s
        return effects

    def _audit_moves(self, worker: WorkerControl, pool: _Pool, control: ControlTuple) -> list[StateraEffect]:
        """Returns one audit record for all engines whose N_run has changed by more than the share `audit_change` since
        their last record, and for the beginning or end of a freeze; nothing if there is neither."""
        moves: list[str] = []
        for engine in control.engines:
            before = worker.audited.setdefault(engine.engine, engine.n_run)
            if abs(engine.n_run - before) > self._config.audit_change * before:
                moves.append(f"{engine.engine}: N_run {before} -> {engine.n_run}")
                worker.audited[engine.engine] = engine.n_run
        if worker.sent is not None and worker.sent[2] != control.frozen:
            moves.append("frozen" if control.frozen else "released")
        if not moves:
            return []
        utilisation = pool.view.utilisation if pool.view is not None else 0.0
        band = self._band
        reason = f"utilisation {utilisation:.2f}, band [{band.low:.2f}, {band.high:.2f}]"
        return self._audit(worker.pool, pool, f"{worker.worker}: " + "; ".join(moves), reason, "band")

    def _audit(self, name: str, pool: _Pool, decision: str, reason: str, loop: str) -> list[StateraEffect]:
        record = AuditRecord(
            source="statera",
            pool=name,
            kind="tuple",
            decision=decision,
            reason=reason,
            selector=loop,
            view_json=view_json(pool.view),
            epoch=self._epoch or 0,
            seq=self._seq,
        )
        return [PublishAudit(record)]

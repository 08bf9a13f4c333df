"""The QoS agent, Phi_qos (H-MAS §3.3)."""

from typing import assert_never

from hmas.contracts.control_agents import (
    EpochGranted,
    EpochLost,
    GatewayReported,
    KeepPast,
    PastRestored,
    PublishLong,
    PublishShort,
    QosEffect,
    QosEvent,
    TimerTicked,
    WorkerReported,
)
from hmas.contracts.past import PastBlock
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.telemetry import GatewayTelemetry, WorkerTelemetry
from hmas.contracts.views import PaceView, VLong, VShort
from hmas.laws.pace_fit import PaceFit, slownesses
from hmas.laws.request_rows import OBSERVED
from hmas.laws.scoring import verdict
from hmas.qos.agent.config import QosConfig
from hmas.qos.agent.long import LongWindow
from hmas.qos.agent.past_requests import PastRequests
from hmas.qos.agent.short import ShortWindow
from hmas.qos.agent.workers import WorkerTrack


class _Pool:
    """What the QoS agent knows of one pool, and when the pool's views are due."""

    def __init__(self, config: QosConfig, name: str, now_s: float) -> None:
        self.config = config
        self.name = name
        self.short = ShortWindow(config, name)
        self.long = LongWindow(config, name)
        self.past = PastRequests(config.past)
        self.workers: dict[str, WorkerTrack] = {}
        self.hardware: dict[tuple[str, str], str] = {}  # of the engines of these workers
        self.observing: set[str] = set()  # of these workers, those that only observe
        self.heard_s = now_s
        self.short_due_s = now_s
        self.long_due_s = now_s + config.long_every_s
        self.last_short: VShort | None = None
        self.last_long: VLong | None = None

    def worker(self, now_s: float, telemetry: WorkerTelemetry) -> None:
        track = self.workers.get(telemetry.worker)
        if track is None:
            track = self.workers[telemetry.worker] = WorkerTrack(self.config, telemetry.worker)
        track.report(now_s, telemetry)
        self.short.worker(now_s, telemetry)
        self.long.worker(now_s, telemetry)
        self.past.topology = OBSERVED if telemetry.worker in self.observing else telemetry.topology
        for queued in telemetry.queued:
            self.past.hear(queued)
        for seen in telemetry.first_tokens:
            self.past.hear(seen)

    def beat(self, heartbeat: WorkerHeartbeat) -> None:
        self.hardware |= {(heartbeat.worker, e.engine): e.hardware for e in heartbeat.engines}
        if heartbeat.observes:
            self.observing.add(heartbeat.worker)
        else:
            self.observing.discard(heartbeat.worker)

    def gateway(self, now_s: float, telemetry: GatewayTelemetry) -> None:
        self.short.gateway(now_s, telemetry)
        self.long.offered(now_s, telemetry)
        for offer in telemetry.offered:
            self.past.offered(now_s, offer)
        for settled in telemetry.settled:
            self.past.settled(now_s, settled)
            judged = verdict(settled)
            self.short.settled(now_s, judged, relegated=settled.relegated)
            self.long.settled(now_s, settled, judged)
            for worker in self.workers.values():
                worker.settled(settled.request_id)

    def paces(self) -> tuple[PaceView, ...]:
        """Returns the pace law of each engine for which one was measured."""
        fits = {
            (name, engine.last.engine): engine.pace
            for name, worker in self.workers.items()
            for engine in worker.engines.values()
            if engine.pace.observations
        }
        alike: dict[str, dict[tuple[str, str], PaceFit]] = {}
        for each, fit in fits.items():
            alike.setdefault(self.hardware.get(each, ""), {})[each] = fit
        views = {}
        for group in alike.values():
            slow = dict(zip(group, slownesses(list(group.values())), strict=True))
            for each, fit in group.items():
                others = ((group[other], slow[each] / slow[other]) for other in group if other != each)
                views[each] = fit.view(*each, others)
        return tuple(views[each] for each in fits)

    def forget_lost_workers(self, now_s: float) -> None:
        horizon = now_s - self.config.worker_lost_after_s
        self.workers = {name: track for name, track in self.workers.items() if track.seen_s >= horizon}
        self.hardware = {each: told for each, told in self.hardware.items() if each[0] in self.workers}
        self.observing &= self.workers.keys()


class QosAgent:
    """Turns telemetry into V_short and V_long of each pool. It needs a `TimerTicked` at least every `short_every_s`."""

    def __init__(self, config: QosConfig) -> None:
        self._config = config
        self._pools: dict[str, _Pool] = {}
        self._epoch: int | None = None
        self._seq = 0

    def step(self, now_s: float, event: QosEvent) -> list[QosEffect]:
        match event:
            case WorkerReported(telemetry):
                if (pool := self._pool(now_s, telemetry.pool)) is not None:
                    pool.worker(now_s, telemetry)
            case GatewayReported(telemetry):
                if (pool := self._pool(now_s, telemetry.pool)) is not None:
                    pool.gateway(now_s, telemetry)
            case HeartbeatReceived(heartbeat):
                if (pool := self._pool(now_s, heartbeat.pool)) is not None:
                    pool.beat(heartbeat)
            case PastRestored(name, blocks):
                if (pool := self._pool(now_s, name)) is not None:
                    pool.past.restore(now_s, blocks)
            case EpochGranted(epoch):
                self._epoch = epoch
            case EpochLost():
                self._epoch = None
            case TimerTicked():
                return self._tick(now_s)
            case _:
                assert_never(event)
        return []

    def views(self, pool: str = "") -> tuple[list[VShort], list[VLong]]:
        """Returns the latest views of the pool, or of all pools if `pool` is empty; a standby copy has them too."""
        chosen = [p for name, p in self._pools.items() if pool in ("", name)]
        return (
            [p.last_short for p in chosen if p.last_short is not None],
            [p.last_long for p in chosen if p.last_long is not None],
        )

    @property
    def publishes(self) -> bool:
        """Whether this copy holds the lease, so that it answers for the pools."""
        return self._epoch is not None

    def past(self, now_s: float, pool: str, last_s: float, first: int = 0) -> list[PastBlock]:
        """Returns the blocks of a pool's past requests, as `PastRequests.since`; none of a pool that is not known."""
        known = self._pools.get(pool)
        return [] if known is None else known.past.since(now_s, last_s, first)

    def _pool(self, now_s: float, name: str) -> _Pool | None:
        pool = self._pools.get(name)
        if pool is None:
            if len(self._pools) >= self._config.max_pools:
                return None
            pool = self._pools[name] = _Pool(self._config, name, now_s)
        pool.heard_s = now_s
        return pool

    def _tick(self, now_s: float) -> list[QosEffect]:
        horizon = now_s - self._config.pool_forgotten_after_s
        self._pools = {name: pool for name, pool in self._pools.items() if pool.heard_s >= horizon}
        effects: list[QosEffect] = []
        for pool in self._pools.values():
            effects += self._publish(now_s, pool)
        return effects

    def _publish(self, now_s: float, pool: _Pool) -> list[QosEffect]:
        """Makes the views that are due, because V_long is fed by V_short, and returns the effects that publish them; a
        standby copy makes the views and publishes none."""
        effects: list[QosEffect] = []
        if now_s >= pool.short_due_s:
            pool.short_due_s = _next(now_s, pool.short_due_s, self._config.short_every_s)
            pool.forget_lost_workers(now_s)
            short = pool.short.view(now_s, list(pool.workers.values()), *self._stamp())
            pool.last_short = short
            pool.long.sampled(now_s, short)
            effects.append(PublishShort(short))
        if now_s >= pool.long_due_s:
            pool.long_due_s = _next(now_s, pool.long_due_s, self._config.long_every_s)
            pool.last_long = pool.long.view(now_s, *self._stamp(), pool.paces())
            effects.append(PublishLong(pool.last_long))
            if (block := pool.past.to_keep(now_s)) is not None:
                effects.append(KeepPast(pool.name, block))
        return effects if self._epoch is not None else []

    def _stamp(self) -> tuple[int, int]:
        self._seq += 1
        return self._epoch or 0, self._seq


def _next(now_s: float, due_s: float, every_s: float) -> float:
    """Returns when the next view is due. Late ticks do not lengthen the period on average, and missed views are not
    made up for."""
    return due_s + every_s if now_s < due_s + every_s else now_s + every_s

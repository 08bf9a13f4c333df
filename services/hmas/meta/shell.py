"""Shell: the Meta service, and what is read again at the start."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from hmas.contracts.control import AuditRecord, Pin, TopologyDecision, TopologyName
from hmas.contracts.control_agents import PinChanged, TopologyRestored
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.meta.agent import MetaAgent
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.wire import subjects
from hmas.wire.codec import to_message
from hmas.wire.v1 import observe_pb2 as pb
from hmas.wire.v1 import observe_pb2_grpc

log = structlog.get_logger()
SERVICE = pb.DESCRIPTOR.services_by_name["Meta"].full_name
RECENT_RECORDS = 500


class PoolIntroduction:
    """Reads a pool's pin and last decision before its first heartbeat is posted; pins again after a reconnection."""

    def __init__(self, bucket: ControlBucket, post: Callable[[object], None]) -> None:
        self._bucket = bucket
        self._post = post
        self._known: set[str] = set()
        self._reading: dict[str, asyncio.Task[None]] = {}

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        if heartbeat.pool in self._known:
            self._post(HeartbeatReceived(heartbeat))
        elif heartbeat.pool not in self._reading:
            self._reading[heartbeat.pool] = asyncio.create_task(self._introduce(heartbeat))

    async def connected(self) -> None:
        try:
            await self._bucket.ensure_audit_stream()
        except BucketUnavailable as error:
            log.warning("audit_stream_unavailable", error=str(error))
        for pool in sorted(self._known):
            await self._read(pool, last_decision=False)

    async def _introduce(self, heartbeat: WorkerHeartbeat) -> None:
        await self._read(heartbeat.pool, last_decision=True)
        self._known.add(heartbeat.pool)
        self._post(HeartbeatReceived(heartbeat))
        del self._reading[heartbeat.pool]

    async def _read(self, pool: str, *, last_decision: bool) -> None:
        try:
            pin = await self._bucket.read(Pin, subjects.pin_key(pool))
            last = await self._bucket.read(TopologyDecision, subjects.topology_key(pool)) if last_decision else None
        except BucketUnavailable as error:
            log.warning("last_decision_unread", pool=pool, error=str(error))
            return
        if last is not None:
            self._post(TopologyRestored(last[0]))
        if pin is not None:
            self._post(PinChanged(pin[0]))


class MetaServer(observe_pb2_grpc.MetaServicer):
    """What is in force, and the recent audit records, newest first."""

    def __init__(self, agent: MetaAgent) -> None:
        self._agent = agent
        self._recent: deque[AuditRecord] = deque(maxlen=RECENT_RECORDS)

    def record(self, record: AuditRecord) -> None:
        self._recent.appendleft(record)

    async def Decisions(self, request: pb.DecisionsRequest, context: Any) -> pb.DecisionsReply:  # the RPC's name
        current = [d for d in self._agent.decisions() if request.pool in ("", d.pool)]
        recent = [r for r in self._recent if request.pool in ("", r.pool)]
        limit = request.limit if request.limit > 0 else RECENT_RECORDS
        return pb.DecisionsReply(current=map(to_message, current), recent=map(to_message, recent[:limit]))


class DecisionMetrics:
    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._topology = Gauge(
            "hmas_meta_topology", "1 for the topology in force", ["pool", "topology"], registry=registry
        )
        self._bypass = Gauge("hmas_meta_bypass", "1 during an emergency bypass", ["pool"], registry=registry)
        self._records = Counter(
            "hmas_meta_decisions_total", "Audit records by kind", ["pool", "kind", "selector"], registry=registry
        )

    def show(self, decision: TopologyDecision) -> None:
        self._bypass.labels(decision.pool).set(decision.bypass)
        for topology in TopologyName:
            self._topology.labels(decision.pool, topology.value).set(topology is decision.topology)

    def count(self, record: AuditRecord) -> None:
        self._records.labels(record.pool, record.kind, record.selector).inc()

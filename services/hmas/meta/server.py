"""The gRPC service Meta, which shows decisions."""

from collections import deque
from typing import Any

from hmas.contracts.control import AuditRecord
from hmas.meta.agent import MetaAgent
from hmas.wire.codec import to_message
from hmas.wire.v1 import observe_pb2 as pb
from hmas.wire.v1 import observe_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["Meta"].full_name
RECENT_RECORDS = 500


class MetaServer(observe_pb2_grpc.MetaServicer):
    """Answers with the decisions in force and the recent audit records, newest first."""

    def __init__(self, agent: MetaAgent) -> None:
        self._agent = agent
        self._recent: deque[AuditRecord] = deque(maxlen=RECENT_RECORDS)

    def record(self, record: AuditRecord) -> None:
        self._recent.appendleft(record)

    async def Decisions(self, request: pb.DecisionsRequest, context: Any) -> pb.DecisionsReply:  # the RPC's name
        current = [d for d in self._agent.decisions() if request.pool in ("", d.pool)]
        recent = [r for r in self._recent if request.pool in ("", r.pool)]
        limit = request.limit if request.limit > 0 else RECENT_RECORDS
        layouts = [d for d in self._agent.layouts() if request.pool in ("", d.pool)]
        return pb.DecisionsReply(
            current=map(to_message, current), recent=map(to_message, recent[:limit]), layouts=map(to_message, layouts)
        )

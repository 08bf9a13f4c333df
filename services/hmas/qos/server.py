"""The gRPC service Qos, which shows the latest views."""

from typing import Any

from hmas.qos.agent import QosAgent
from hmas.wire.codec import to_message
from hmas.wire.v1 import observe_pb2 as pb
from hmas.wire.v1 import observe_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["Qos"].full_name


class QosServer(observe_pb2_grpc.QosServicer):
    """Answers with the latest views of the agent, also on a standby copy that does not publish them."""

    def __init__(self, agent: QosAgent) -> None:
        self._agent = agent

    async def Views(self, request: pb.ViewsRequest, context: Any) -> pb.ViewsReply:  # the RPC's name
        short, long = self._agent.views(request.pool)
        return pb.ViewsReply(short=map(to_message, short), long=map(to_message, long))

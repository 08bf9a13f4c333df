"""Omega: the queue topologies that a worker can be switched to, one file each (H-MAS App. C.2).

Invariants:
- A topology holds each entry once, and `pop` returns what `peek` returned.
  [tests/worker/test_request_queue.py::QueueMachine]
- The state of a topology is bounded by the number of queued requests, in fair-share topologies plus `max_idle` tenants.
  [tests/worker/topologies/test_worker_topologies.py::test_idle_tenants_and_flows_are_forgotten]
"""

from collections.abc import Callable, Mapping

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.order.topologies.base import Topology
from hmas.worker.agent.order.topologies.edf import Edf
from hmas.worker.agent.order.topologies.fair_share import FairShareConfig
from hmas.worker.agent.order.topologies.fcfs import Fcfs
from hmas.worker.agent.order.topologies.hybrid import Hybrid, HybridConfig
from hmas.worker.agent.order.topologies.maestro import Maestro
from hmas.worker.agent.order.topologies.max_on_time import MaxOnTime, MaxOnTimeConfig
from hmas.worker.agent.order.topologies.sjf import Sjf
from hmas.worker.agent.order.topologies.two_lane import TwoLane, TwoLaneConfig
from hmas.worker.agent.order.topologies.wfq import Wfq

MakeTopology = Callable[[Hints], Topology]
TOPOLOGIES: Mapping[str, MakeTopology] = {
    TopologyName.FCFS: lambda hints: Fcfs(),
    TopologyName.EDF: lambda hints: Edf(),
    TopologyName.SJF: lambda hints: Sjf(),
    TopologyName.MAESTRO: lambda hints: Maestro(),
    TopologyName.TWO_LANE: lambda hints: TwoLane(hints, TwoLaneConfig()),
    TopologyName.WFQ: lambda hints: Wfq(FairShareConfig()),
    TopologyName.MAX_ON_TIME: lambda hints: MaxOnTime(hints, MaxOnTimeConfig()),
    TopologyName.HYBRID: lambda hints: Hybrid(hints, HybridConfig()),
}

__all__ = ["TOPOLOGIES", "MakeTopology", "Topology"]

"""Omega: the queue topologies a worker can be switched to, one file each (H-MAS App. C.2).

Invariants: a topology holds each entry once, `pop` gives what `peek` showed, its state is bounded by what is queued
(fair-share ones: + `MAX_IDLE` tenants), and equal histories give equal orders.
"""

from collections.abc import Callable

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.config import RandomSource
from hmas.worker.agent.topologies.base import Topology
from hmas.worker.agent.topologies.cfs import Cfs
from hmas.worker.agent.topologies.edf import Edf
from hmas.worker.agent.topologies.fcfs import Fcfs
from hmas.worker.agent.topologies.hybrid import Hybrid
from hmas.worker.agent.topologies.llf import Llf
from hmas.worker.agent.topologies.lottery import Lottery
from hmas.worker.agent.topologies.max_on_time import MaxOnTime
from hmas.worker.agent.topologies.mlfq import Mlfq
from hmas.worker.agent.topologies.priority import Priority
from hmas.worker.agent.topologies.rr import RoundRobin
from hmas.worker.agent.topologies.sjf import Sjf
from hmas.worker.agent.topologies.srtf import Srtf
from hmas.worker.agent.topologies.stride import Stride
from hmas.worker.agent.topologies.two_lane import TwoLane
from hmas.worker.agent.topologies.wfq import Wfq

TOPOLOGIES: dict[TopologyName, Callable[[Hints, RandomSource], Topology]] = {
    TopologyName.FCFS: lambda hints, draw: Fcfs(),
    TopologyName.EDF: lambda hints, draw: Edf(),
    TopologyName.LLF: lambda hints, draw: Llf(),
    TopologyName.SJF: lambda hints, draw: Sjf(),
    TopologyName.SRTF: lambda hints, draw: Srtf(),
    TopologyName.TWO_LANE: lambda hints, draw: TwoLane(hints),
    TopologyName.WFQ: lambda hints, draw: Wfq(hints),
    TopologyName.STRIDE: lambda hints, draw: Stride(hints),
    TopologyName.LOTTERY: Lottery,
    TopologyName.CFS: lambda hints, draw: Cfs(hints),
    TopologyName.RR: lambda hints, draw: RoundRobin(hints),
    TopologyName.MLFQ: lambda hints, draw: Mlfq(hints),
    TopologyName.PRIORITY: lambda hints, draw: Priority(),
    TopologyName.MAX_ON_TIME: lambda hints, draw: MaxOnTime(hints),
    TopologyName.HYBRID: lambda hints, draw: Hybrid(hints),
}

__all__ = ["TOPOLOGIES", "Topology"]

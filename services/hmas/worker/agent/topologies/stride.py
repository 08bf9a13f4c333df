"""Stride scheduling (Waldspurger and Weihl 1995)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.topologies.fair_share import FairShare


class Stride(FairShare):
    """The tenant with the least pass value. A dispatch advances its pass by its stride (1 / weight) times the
    request's predicted service, the end of the request corrects it. A tenant that comes back keeps what it owes."""

    name = TopologyName.STRIDE
    __slots__ = ()

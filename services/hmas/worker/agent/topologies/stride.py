"""Stride scheduling (Waldspurger and Weihl 1995)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.topologies.fair_share import FairShare


class Stride(FairShare):
    """Serves the tenant with the least pass value.

    A dispatch advances the tenant's pass by its stride (1 / weight) times the request's predicted service, and the end
    of the request corrects it. A tenant that comes back from idle keeps its debt.
    """

    name = TopologyName.STRIDE
    __slots__ = ()

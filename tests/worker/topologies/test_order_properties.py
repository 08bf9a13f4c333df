"""The built-in orders hold what `hmas.testing` asks of those of packages, and it finds each kind of fault."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings

from hmas.contracts.control import Hints, TopologyName
from hmas.testing import OrderProperties
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies import TOPOLOGIES
from hmas.worker.agent.order.topologies.base import KeyOrdered

SETTINGS = "_hypothesis_internal_use_settings"  # where Hypothesis keeps those of a test


class TestFcfs(OrderProperties):
    name = TopologyName.FCFS
    make = staticmethod(TOPOLOGIES[TopologyName.FCFS])


class TestEdf(OrderProperties):
    name = TopologyName.EDF
    make = staticmethod(TOPOLOGIES[TopologyName.EDF])


class TestSjf(OrderProperties):
    name = TopologyName.SJF
    make = staticmethod(TOPOLOGIES[TopologyName.SJF])


class TestMaestro(OrderProperties):
    name = TopologyName.MAESTRO
    make = staticmethod(TOPOLOGIES[TopologyName.MAESTRO])


class TestTwoLane(OrderProperties):
    name = TopologyName.TWO_LANE
    make = staticmethod(TOPOLOGIES[TopologyName.TWO_LANE])


class TestWfq(OrderProperties):
    name = TopologyName.WFQ
    make = staticmethod(TOPOLOGIES[TopologyName.WFQ])


class TestMaxOnTime(OrderProperties):
    name = TopologyName.MAX_ON_TIME
    make = staticmethod(TOPOLOGIES[TopologyName.MAX_ON_TIME])


class TestHybrid(OrderProperties):
    name = TopologyName.HYBRID
    make = staticmethod(TOPOLOGIES[TopologyName.HYBRID])


def test_each_built_in_order_is_held_to_them() -> None:
    held = {case.name for case in OrderProperties.__subclasses__() if case.__module__ == __name__}
    assert held >= set(TopologyName)


class Mine(KeyOrdered):
    name = TopologyName("mine")
    uses_tags = False

    def key(self, entry: QueueEntry) -> float:
        return float(entry.request.prompt_tokens)


class Misnamed(Mine):
    name = TopologyName("other")


class Unsaid(Mine):
    uses_tags = None  # type: ignore[assignment]


class Loses(Mine):
    def remove(self, entry: QueueEntry) -> None:
        super().remove(entry)
        self._heap.pop()


class KeepsOnRemoval(Mine):
    def remove(self, entry: QueueEntry) -> None:
        pass


class Draws(Mine):
    def key(self, entry: QueueEntry) -> float:
        return random.random()


class RebuildsInPart(Mine):
    def rebuild(self, entries: Any) -> None:
        super().rebuild(list(entries)[:3])


class CopiedEmpty(Mine):
    def __deepcopy__(self, memo: object) -> "CopiedEmpty":
        return CopiedEmpty()


class Silent(Mine):
    def why(self, entry: QueueEntry, now_s: float) -> str:
        return ""


class UsesTagsUnsaid(Mine):
    def key(self, entry: QueueEntry) -> float:
        return entry.predicted_tokens


class Remembers(Mine):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, float] = {}

    def key(self, entry: QueueEntry) -> float:
        self.seen[entry.request.tenant] = entry.request.arrival_s
        return super().key(entry)


class Withholds(Mine):
    def peek(self) -> QueueEntry | None:
        return super().peek() if len(self) > 1 else None

    def pop(self) -> QueueEntry | None:
        return super().pop() if len(self) > 1 else None


FAULTS: dict[type[Mine], str] = {
    Misnamed: "test_it_says_what_it_is",
    Unsaid: "test_it_says_what_it_is",
    Loses: "test_each_request_leaves_once",
    KeepsOnRemoval: "test_each_request_leaves_once",
    Withholds: "test_each_request_leaves_once",
    Draws: "test_the_same_again_is_the_same",
    RebuildsInPart: "test_what_waited_before_it_came_is_served",
    CopiedEmpty: "test_a_copy_serves_the_same",
    Silent: "test_it_says_why",
    UsesTagsUnsaid: "test_tags_change_it_only_if_it_says_so",
    Remembers: "test_it_forgets_who_is_gone",
}


def case(order: type[Mine]) -> OrderProperties:
    made: Callable[[Hints], object] = staticmethod(lambda hints: order())
    return type("Case", (OrderProperties,), {"name": "mine", "make": made})()  # type: ignore[no-any-return]


@pytest.mark.long
@pytest.mark.parametrize("order", FAULTS)
def test_a_fault_is_found(order: type[Mine], monkeypatch: pytest.MonkeyPatch) -> None:
    found = getattr(OrderProperties, FAULTS[order])
    if (said := getattr(found, SETTINGS, None)) is not None:  # nobody reads the smallest example of a planted fault
        monkeypatch.setattr(found, SETTINGS, settings(said, max_examples=50, phases=[Phase.generate], database=None))
    with pytest.raises(AssertionError):
        getattr(case(order), FAULTS[order])()


def test_every_property_finds_a_fault() -> None:
    assert {name for name in vars(OrderProperties) if name.startswith("test_")} == set(FAULTS.values())


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(FAULTS.values())))
def test_an_order_without_a_fault_passes(name: str) -> None:
    getattr(case(Mine), name)()

"""Every order of the queue is named in the tests of topologies."""

from collections.abc import Iterable

from hmas.contracts.control import TopologyName
from tests.house.repository import written

FOLDER = "tests/worker/topologies/"


def untested(names: Iterable[str], tests: str) -> list[str]:
    """The members of `TopologyName` that the text of the tests does not name one by one."""
    return [name for name in names if f"TopologyName.{name}" not in tests and f"topologies.{name.lower()}" not in tests]


def test_every_order_has_a_test() -> None:
    tests = "\n".join(text for _, text in written(".py", below=(FOLDER,)))
    assert untested(TopologyName.__members__, tests) == []


def test_an_order_without_a_test_is_found() -> None:
    assert untested(["EDF", "LLF", "SJF"], "TopologyName.EDF; from topologies.sjf import Sjf") == ["LLF"]

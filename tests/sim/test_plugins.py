"""A package outside the repository adds an order and a selector, which every edge knows by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hmas import entry_points
from hmas.contracts.control import TopologyName
from hmas.entry_points import installed, known_topology, loaded, topology_names
from hmas.meta.agent.config import MetaConfig
from hmas.meta.settings import MetaSettings
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.worker.agent.order.topologies import TOPOLOGIES
from hmas.worker.settings import WorkerSettings
from tests.sim.sim_cases import SMALL, random_workload
from tests.worker.builders import entry, request

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugins" / "hmas-last-first"
ENTRY_POINTS = """
[hmas.topologies]
last_first = hmas_last_first:make_last_first
[hmas.selectors]
last_first_when_late = hmas_last_first:LastFirstWhenLate
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example as pip leaves it: its module on the path, its entry points in a `dist-info` folder."""
    info = tmp_path / "hmas_last_first-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hmas-last-first\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    installed.cache_clear()
    yield info
    installed.cache_clear()


@pytest.mark.usefixtures("plugin")
def test_the_simulator_serves_by_an_order_and_a_selector_of_a_package() -> None:
    assert known_topology("last_first") == TopologyName("last_first")
    order = MeshSetup().topologies["last_first"]
    made = order(MeshSetup().hints)
    for seq in range(3):
        made.push(entry(seq, request(f"r{seq}", arrival_s=float(seq))))
    assert [head.request.id for head in iter(made.pop, None)] == ["r2", "r1", "r0"]
    workload = random_workload(1, 6.0, 5.0)
    pinned = MeshSim(MeshSetup(pin=TopologyName("last_first"), costs="linear"), SMALL, 1, workload, 1)
    pinned.run()
    assert pinned.workers["w0"].spans[-1].topology == "last_first"
    chooses = MeshSetup(meta_config=MetaConfig(selector="last_first_when_late"), costs="linear")
    assert MeshSim(chooses, SMALL, 1, workload, 1).run().settlements
    assert MetaSettings(selector="last_first_when_late").chosen_selector == "last_first_when_late"


def test_an_unknown_name_is_refused_at_the_edges_with_the_known_ones() -> None:
    assert "last_first" not in topology_names()
    with pytest.raises(ValueError, match="'last_first' is not a topology: use one of fcfs, edf"):
        known_topology("last_first")
    with pytest.raises(ValueError, match="last_first is not a topology"):
        MeshSim(MeshSetup(pin=TopologyName("last_first")), SMALL, 1, random_workload(1, 1.0, 1.0), 1)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("other = nowhere:make", "of hmas-last-first cannot be loaded: ModuleNotFoundError"),
        (
            "Last-First = hmas_last_first:make_last_first",
            "no installed package adds 'other' \\(packages here add Last-Fir",
        ),
        ("", "no installed package adds 'other' \\(packages here add nothing\\): install the one that does"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(plugin: Path, lines: str, told: str) -> None:
    (plugin / "entry_points.txt").write_text(f"[hmas.topologies]\n{lines}\n")
    installed.cache_clear()
    with pytest.raises(ValueError, match=told):
        loaded(entry_points.TOPOLOGIES, TOPOLOGIES, ["other"])


def test_two_packages_with_one_name_are_refused(plugin: Path) -> None:
    second = plugin.with_name("again-0.1.0.dist-info")
    second.mkdir()
    (second / "METADATA").write_text("Metadata-Version: 2.1\nName: again\nVersion: 0.1.0\n")
    (second / "entry_points.txt").write_text(ENTRY_POINTS)
    installed.cache_clear()
    with pytest.raises(ValueError, match=r"two installed packages have last_first: .* of .* and .* of .*; remove one"):
        loaded(entry_points.TOPOLOGIES, TOPOLOGIES, ["last_first"])


def test_what_is_installed_is_imported_only_where_it_is_named(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = "http://127.0.0.1:1"
    monkeypatch.delitem(sys.modules, "hmas_last_first", raising=False)
    broken = "[hmas.topologies]\nbroken = nowhere:make\nedf = nowhere:make\n" + ENTRY_POINTS.split("]", 1)[1]
    (plugin / "entry_points.txt").write_text(broken.replace("[hmas.selectors]", "[hmas.selectors]\nbad = nowhere:Bad"))
    installed.cache_clear()
    assert {"last_first", "broken"} < set(topology_names())
    plain = MeshSetup(costs="linear")
    MeshSim(plain, SMALL, 1, random_workload(1, 2.0, 2.0), 1).run()
    assert MetaSettings().chosen_selector == "rules"
    assert WorkerSettings(pool="m", engines=engines).topologies == ()
    assert "hmas_last_first" not in sys.modules
    assert WorkerSettings(pool="m", engines=engines, topologies="last_first").topologies == ("last_first",)
    assert "hmas_last_first" in sys.modules
    for name, told in (("edf", "edf is built in"), ("broken", "broken = nowhere:make of hmas-last-first cannot be")):
        with pytest.raises(ValueError, match=told):
            WorkerSettings(pool="m", engines=engines, topologies=f"last_first, {name}")
    with pytest.raises(ValueError, match="HMAS_SELECTOR: the entry point bad = nowhere:Bad of hmas-last-first cannot"):
        MetaSettings(selector="bad")


def test_a_simulation_of_an_order_that_fails_says_so(plugin: Path) -> None:
    (plugin.parent / "fails.py").write_text("def make(hints):\n    return 1 // 0\n")
    (plugin / "entry_points.txt").write_text("[hmas.topologies]\nfails = fails:make\n")
    installed.cache_clear()
    failing = MeshSetup(pin=TopologyName("fails"), costs="linear")
    with pytest.raises(ValueError, match=r"the topology fails failed: .*ZeroDivisionError.*\(in fails.py, line 2\)"):
        MeshSim(failing, SMALL, 1, random_workload(1, 6.0, 5.0), 1).run()

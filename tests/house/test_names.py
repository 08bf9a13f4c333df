"""One meaning a word: a public class or type alias has its name alone, and functions and files of two rooms differ.

A room is a folder of `services/hmas`, the load generator, or one of the folders of the laboratory.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from textwrap import dedent

import pytest

from tests.house import repository
from tests.house.repository import aliases, classes, functions, room, stems

PRODUCT = ("services/", "loadgen/")
HOUSE_TYPES = frozenset({"Floats", "Ints", "Message", "Receive", "Send"})  # arrays of NumPy; the names of ASGI
HOUSE_FUNCTIONS = frozenset({"main", "serve"})  # how each process begins
HOUSE_STEMS = frozenset(  # a room's file with this name is the same part of it everywhere
    {"__init__", "__main__", "agent", "shell", "settings", "metrics", "config", "state", "cli", "server", "client"}
)
ONE_SUBJECT = frozenset(  # files of several rooms about one and the same thing
    {"api", "arrivals", "backend", "batching", "body", "certificates", "chunking", "cognition", "control",
     "engines", "evaluation", "execution", "fence", "generative", "introduction", "jobs", "kv_events",
     "kv_events_config", "layouts", "maestro", "mesh", "niyama", "ownership", "pace", "page", "prior",
     "prompts", "queue", "rehearsal", "rehearsals", "request", "result", "routing", "scoring", "simulated",
     "slo", "statistics", "steering", "streams", "systems", "whatif", "words", "workers", "workload", "worth"}
)  # fmt: skip

# Names with two meanings that were there before this test; none may be added.
KNOWN_TYPES = frozenset(  # aliases and type variables
    {"Act", "Ask", "Call", "Choice", "Document", "Ef", "Ev", "Fault",
     "Figures", "Instants", "Key", "Kind", "Lengths", "Measure", "Part",
     "Prediction", "Progress", "Report", "Row", "Source", "State",
     "Timeline", "Tokens", "Verdict", "Workload"}
)  # fmt: skip
KNOWN_FUNCTIONS = frozenset(  # functions of the product
    {"annotate", "answer", "compare", "connected", "described", "named_profile", "parse_answer",
     "ranked", "read", "refusal", "refuse", "rehearse", "render", "replay", "rows_of", "seconds",
     "window", "words", "work_s", "write"}
)  # fmt: skip
KNOWN_STEMS = frozenset(  # files
    {"admission", "applications", "command", "execute", "figures", "file", "fleet", "journal",
     "lengths", "limits", "meter", "options", "outcome", "ports",
     "priority", "process", "registry", "rules", "run", "runs", "shares", "source", "stream", "table",
     "waiting"}
)  # fmt: skip


def repeated(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The places of each name that has several."""
    places = defaultdict(list)
    for name, path in named:
        places[name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def shared(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The places of each name that several rooms have."""
    return {name: paths for name, paths in repeated(named).items() if len({room(path) for path in paths}) > 1}


def test_public_class_names_are_unique() -> None:
    assert repeated(classes()) == {}


def types() -> dict[str, list[str]]:
    mine = {name for name, _ in aliases()}
    return repeated([*aliases(), *((name, path) for name, path in classes() if name in mine)])


def shared_functions() -> dict[str, list[str]]:
    """Functions of the product that several rooms name alike. `on_ended` and its like handle the event of that name."""
    found = ((name, path) for name, path in functions() if path.startswith(PRODUCT) and not name.startswith("on_"))
    return shared(found)


def test_type_aliases_are_unique_and_named_like_no_class() -> None:
    assert {name: paths for name, paths in types().items() if name not in KNOWN_TYPES | HOUSE_TYPES} == {}


def test_rooms_share_no_name_of_a_function() -> None:
    allowed = KNOWN_FUNCTIONS | HOUSE_FUNCTIONS
    assert {name: paths for name, paths in shared_functions().items() if name not in allowed} == {}


def test_rooms_share_no_name_of_a_file() -> None:
    allowed = KNOWN_STEMS | ONE_SUBJECT | HOUSE_STEMS
    assert {name: paths for name, paths in shared(stems()).items() if name not in allowed} == {}


def test_no_name_is_listed_without_need() -> None:
    assert KNOWN_TYPES - set(types()) == set()
    assert KNOWN_FUNCTIONS - set(shared_functions()) == set()
    assert (KNOWN_STEMS | ONE_SUBJECT) - set(shared(stems())) == set()


def test_a_name_with_two_meanings_is_found() -> None:
    assert repeated([("Pace", "a.py"), ("Fence", "b.py"), ("Pace", "c.py")]) == {"Pace": ["a.py", "c.py"]}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("services/hmas/gateway/agent/requests/ledger.py", "services/hmas/worker/agent/reports.py", True),
        ("services/hmas/gateway/agent/requests/ledger.py", "services/hmas/gateway/ledger.py", False),
        ("services/hmas/mesh/jobs.py", "loadgen/hmas_loadgen/jobs.py", True),
        ("experiments/fence.py", "experiments/report/fence.py", False),
        ("experiments/fence.py", "services/hmas/statera/agent/fence.py", True),
    ],
)
def test_a_name_of_two_rooms_is_found(first: str, second: str, found: bool) -> None:
    assert shared([("name", first), ("name", second), ("other", first)]) == ({"name": [first, second]} if found else {})


def test_aliases_functions_and_files_of_a_module_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    module = """
        Place = tuple[str, int]
        Pace: TypeAlias = float
        Item = TypeVar("Item")
        T = TypeVar("T")
        Out = Annotated[Path, typer.Option()]
        MOST = 3
        _Own = int
        async def place(): ...
        def _own(): ...
        class Outlook:
            def look(self): ...
    """
    path = "services/hmas/gateway/outlook.py"
    monkeypatch.setattr(repository, "trees", lambda: ((path, ast.parse(dedent(module))),))
    assert list(aliases()) == [("Place", path), ("Pace", path), ("Item", path)]
    assert list(functions()) == [("place", path)]
    assert list(stems()) == [("outlook", path)]
    assert list(classes()) == [("Outlook", path)]

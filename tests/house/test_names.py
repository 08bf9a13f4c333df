"""One meaning a word: no public class name is used twice."""

from collections import defaultdict
from collections.abc import Iterable

from tests.house.repository import classes


def repeated(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for name, path in named:
        places[name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_public_class_names_are_unique() -> None:
    assert repeated(classes()) == {}


def test_a_name_with_two_meanings_is_found() -> None:
    assert repeated([("Pace", "a.py"), ("Fence", "b.py"), ("Pace", "c.py")]) == {"Pace": ["a.py", "c.py"]}

"""What `make unit` does not even import holds none of its tests."""

import re
from pathlib import Path

import pytest

from tests.house.repository import ROOT, written

(_ELSEWHERE,) = re.findall(r"^ELSEWHERE := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
MODULES = [
    (path, suite, text)
    for suite in _ELSEWHERE.split()
    for path, text in written(".py", below=(f"tests/{suite}/",))
    if Path(path).name.startswith("test_")
]


@pytest.mark.parametrize(("path", "suite", "text"), MODULES, ids=[path for path, *_ in MODULES])
def test_a_module_left_out_by_the_unit_tests_has_its_suites_mark(path: str, suite: str, text: str) -> None:
    marks = re.search(r"^pytestmark = (?:\[[^]]*\]|.*)", text, re.MULTILINE)
    assert marks is not None, f"{path}: no pytestmark, so no suite runs it"
    assert f"pytest.mark.{suite}" in marks[0]

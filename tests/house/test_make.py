"""`make help` lists every target that one may ask for."""

import re
import subprocess

from tests.house.repository import ROOT


def make(*arguments: str) -> str:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_help_names_every_target_with_what_it_does() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    targets = {name for line in re.findall(r"^\.PHONY:(.*)$", text, re.MULTILINE) for name in line.split()}
    listed = dict(line.split(" — ", 1) for line in make("help").splitlines())
    assert {name for names in listed for name in names.split()} == targets
    assert all(listed.values())


def test_without_any_python_it_says_which_ones_would_do() -> None:
    told = make("--dry-run", "--always-make", "PYTHON=", ".venv/.installed-mesh")
    assert "no Python 3.11 to 3.14 found: install one, or set PYTHON=..." in told

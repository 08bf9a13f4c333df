"""What the `hmas` command imports."""

import subprocess
import sys

import pytest

SOURCE = """
import sys
from hmas.mesh.cli import main
sys.argv = ["hmas", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print("ended", end.code or 0, *(name for name in ("hmas.sim.cli", "hmas_loadgen.cli") if name in sys.modules))
"""


def imported(*words: str) -> list[str]:
    """Runs a command, and returns how it ended and which of two large parts it imported."""
    ran = subprocess.run([sys.executable, "-c", SOURCE, *words], capture_output=True, text=True, check=True)
    return ran.stdout.strip().rpartition("\n")[2].split()[1:]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--version", []),
        ("up --help", []),
        ("secrets --help", []),
        ("sim --help", ["hmas.sim.cli"]),
        ("--help", ["hmas.sim.cli", "hmas_loadgen.cli"]),
    ],
)
def test_a_command_imports_what_is_asked_for(words: str, parts: list[str]) -> None:
    assert imported(*words.split()) == ["0", *parts]


def test_a_misspelt_command_is_told_from_all() -> None:
    assert imported("swim") == ["2", "hmas.sim.cli", "hmas_loadgen.cli"]

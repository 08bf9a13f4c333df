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
    print("ended", end.code or 0, *(name for name in ("hmas_lab.sim.cli", "hmas_loadgen.cli") if name in sys.modules))
"""


WHEEL = f"import sys\nsys.modules['hmas_lab'] = None\n{SOURCE}"  # as where the package alone is installed


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
        ("sim --help", ["hmas_lab.sim.cli"]),
        ("--help", ["hmas_lab.sim.cli", "hmas_loadgen.cli"]),
    ],
)
def test_a_command_imports_what_is_asked_for(words: str, parts: list[str]) -> None:
    assert imported(*words.split()) == ["0", *parts]


def test_a_misspelt_command_is_told_from_all() -> None:
    assert imported("swim") == ["2", "hmas_lab.sim.cli", "hmas_loadgen.cli"]


@pytest.mark.parametrize("command", ["eval", "label", "sim", "train"])
def test_a_command_of_the_laboratory_names_a_clone_where_there_is_none(command: str) -> None:
    ran = subprocess.run([sys.executable, "-c", WHEEL, command, "run"], capture_output=True, text=True, check=True)
    assert ran.stdout.split()[:2] == ["ended", "1"]
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"hmas: hmas {command} needs a clone of the repository: `make run` there ")

"""The wheel as a user gets it: built here, installed into empty environments, run far from the repository."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL_TIMEOUT_S = 900
NEWER = "3.13"
COMMON = ("embedded", "sim", "perception")


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment with the wheel in it, and a folder to run its commands in."""

    venv: Path
    folder: Path

    def run(
        self, *command: str, env: dict[str, str] | None = None, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """A program of the environment with its arguments; nothing of this process's Python leaks into it."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HMAS_"))}
        clean |= {"PATH": f"{self.venv / 'bin'}:/usr/bin:/bin", "COLUMNS": "400"}
        return subprocess.run(
            [self.venv / "bin" / command[0], *command[1:]],
            cwd=self.folder, env={**clean, **(env or {})},
            capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip

    def packages(self) -> set[str]:
        listed = self.run("python", "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check").stdout
        return {line.partition("==")[0].partition(" @")[0] for line in listed.splitlines()} - {"pip", "setuptools"}


def versions(lock: Path) -> str:
    """The lock as constraints: pip takes a file that has no hash, such as our wheel, only where nothing has one."""
    return "\n".join(re.findall(r"^[\w.-]+==[^\s;]+", lock.read_text(), re.MULTILINE))


def build(project: Path, folder: Path) -> Path:
    """Builds the wheel of a project into an empty folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


def interpreter(version: str) -> Path | None:
    """Another Python, such as 3.13: on the path, or beside this one, where version managers keep theirs."""
    on_path = shutil.which(f"python{version}")
    beside = sorted(Path(sys.base_prefix).resolve().parent.glob(f"*{version}*/bin/python{version}"))
    for candidate in (*([Path(on_path)] if on_path else []), *beside):
        if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:  # a shim may know no version
            return candidate
    return None


def install(wheel: Path, folder: Path, extras: Sequence[str], python: Path = Path(sys.executable)) -> Installed:
    installed = Installed(folder / "venv", folder / "elsewhere")
    installed.folder.mkdir()
    constraints = folder / "constraints.txt"
    constraints.write_text(versions(ROOT / "locks" / "dev.txt"))
    subprocess.run([python, "-m", "venv", installed.venv], check=True)
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    pip = ("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    done = installed.run(*pip, "--constraint", str(constraints), wanted, timeout_s=INSTALL_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return installed


@pytest.fixture(scope="session")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Without any extra."""
    return install(wheel, tmp_path_factory.mktemp("base"), [])


@pytest.fixture(scope="session")
def common(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """With the extras of somebody who tries it out."""
    return install(wheel, tmp_path_factory.mktemp("common"), COMMON)


@pytest.fixture(scope="session")
def newer(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The same on a newer Python than the one that the locks were resolved for."""
    python = interpreter(NEWER)
    if python is None:
        pytest.skip(f"no Python {NEWER} here: install one, beside this one or on PATH")
    return install(wheel, tmp_path_factory.mktemp("newer"), COMMON, python)

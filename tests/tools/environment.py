"""Programs of others that speak to an OpenAI API, each in an environment of its own, kept outside the work tree: what
they need does not go together with what we need."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

PROGRAMS = {"guidellm": "0.8.1", "aiperf": "0.13.0", "schemathesis": "4.32.5"}
# Installed first, by pip, which saves gigabytes where its index has a build of PyTorch for CPUs.
FIRST = {"guidellm": "torch==2.13.0"}
INSTALL_TIMEOUT_S = 900


class NotInstalled(Exception):
    """A program cannot be had here; the reason."""


def program(name: str) -> Path:
    """Returns the path of a program, installed if it is not there yet. Raises NotInstalled."""
    cache = Path(os.environ.get("HMAS_TOOL_CACHE") or Path.home() / ".cache" / "hmas" / "tools")
    folder = cache / f"{name}-{PROGRAMS[name]}"
    folder.mkdir(parents=True, exist_ok=True)
    uv = str(Path(sys.executable).with_name("uv"))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            venv = str(folder / "venv")
            _run([uv, "venv", "--clear", "--quiet", "--python", sys.executable, venv])
            if name in FIRST:
                pip = [sys.executable, "-m", "pip", "--python", f"{venv}/bin/python", "install", "--quiet"]
                _run([*pip, "--disable-pip-version-check", FIRST[name]])
            _run([uv, "pip", "install", "--quiet", "--python", venv, f"{name}=={PROGRAMS[name]}"])
            (folder / "done").touch()
    return folder / "venv" / "bin" / name


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{' '.join(command)}: {error}") from None
    if done.returncode:
        raise NotInstalled(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")

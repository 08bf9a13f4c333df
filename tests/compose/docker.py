"""A Docker engine and a compose command, and the project's own compose file driven by them."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmas.mesh.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
# Where no registry can be reached, this starts an engine and builds stand-ins for the public base images.
OFFLINE_IMAGES = Path(os.environ.get("HMAS_OFFLINE_IMAGES", ROOT.parent / "shared" / "tools" / "offline-images"))
ONE_SHOT = "init"


class Unavailable(Exception):
    """No Docker engine can be had here; the message says why."""


def compose_command() -> list[str]:
    """Raises Unavailable."""
    if OFFLINE_IMAGES.exists():
        made = subprocess.run(["bash", str(OFFLINE_IMAGES)], capture_output=True, text=True, timeout=1200)
        if made.returncode:
            raise Unavailable(f"{OFFLINE_IMAGES.name} failed: {(made.stderr or made.stdout).strip()[-500:]}")
    if shutil.which("docker") is None:
        raise Unavailable("there is no `docker` command")
    info = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=60)
    if info.returncode:
        raise Unavailable(f"no Docker engine answers: {info.stderr.strip()[-300:]}")
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    raise Unavailable("neither `docker compose` nor `docker-compose` is installed")


class Stack:
    """The project's docker-compose.yml, with further `files`, under a name, a port and an image of its own."""

    def __init__(self, command: Sequence[str], *files: str) -> None:
        port, kind = free_port(), "".join(f"-{file.split('.')[1]}" for file in files)
        self.url = f"http://127.0.0.1:{port}"
        self.image = "hmas:compose-test"
        self.env = {
            "COMPOSE_PROJECT_NAME": f"hmas-test-{os.getpid()}{kind}",
            "HMAS_IMAGE": self.image,
            "HMAS_PUBLISH": f"127.0.0.1:{port}",
            "HMAS_REPLAY_FIELD": "true",
        }
        self._command = [*command, *(arg for file in ("docker-compose.yml", *files) for arg in ("-f", file))]

    def compose(self, *args: str, timeout_s: float = 300) -> str:
        """Standard output. Raises RuntimeError with everything that was printed."""
        done = subprocess.run(
            [*self._command, *args], cwd=ROOT, env={**os.environ, **self.env}, capture_output=True, text=True,
            timeout=timeout_s,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(
                f"{' '.join(args)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            )
        return done.stdout

    def next_image(self) -> str:
        """Builds an image that differs from the present one by a label, as a later version would by more, and names it
        in the environment; returns its id."""
        self.env["HMAS_IMAGE"] = f"{self.image}-next"
        text = f"FROM {self.image}\nLABEL org.opencontainers.image.version=next\n"
        done = subprocess.run(
            ["docker", "build", "-q", "-t", self.env["HMAS_IMAGE"], "-"], input=text, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"docker build: {done.stderr[-2000:]}")
        return done.stdout.strip()

    def services(self) -> list[str]:
        """Those that were started and stay: without the one that makes the secrets and ends."""
        label = "com.docker.compose.service"
        names = docker("ps", "-a", *self._of(), "--format", f'{{{{.Label "{label}"}}}}').split()
        return sorted(set(names) - {ONE_SHOT})

    def container(self, service: str) -> str:
        found = docker("ps", "-aq", *self._of(service)).split()
        if len(found) != 1:
            raise RuntimeError(f"{len(found)} containers of {service}")
        return found[0]

    def _of(self, service: str = "") -> list[str]:
        project = f"label=com.docker.compose.project={self.env['COMPOSE_PROJECT_NAME']}"
        one = ["--filter", f"label=com.docker.compose.service={service}"] if service else []
        return ["--filter", project, *one]

    def inspect(self, service: str) -> dict[str, Any]:
        return dict(json.loads(docker("inspect", self.container(service)))[0])

    def healthy(self, service: str) -> bool:
        """Whether the container's own health check passes now; the engine asks it every ten seconds only."""
        facts = self.inspect(service)
        if not facts["State"]["Running"]:
            return False
        kind, *command = facts["Config"]["Healthcheck"]["Test"]
        shell = ["sh", "-c"] if kind == "CMD-SHELL" else []
        check = ["docker", "exec", facts["Id"], *shell, *command]
        return subprocess.run(check, capture_output=True, timeout=60).returncode == 0

    def kill(self, service: str) -> None:
        """Kills what runs in the container, so that the engine's restart policy has to bring it back (a `docker kill`
        counts as a wish to stop)."""
        subprocess.run(
            ["docker", "exec", self.container(service), "sh", "-c", "kill -9 -1"],
            capture_output=True,
            timeout=60,
        )

    def resident_mib(self, service: str) -> float:
        rows = docker("top", self.container(service), "-eo", "pid,rss").split("\n")[1:]
        return sum(int(row.split()[1]) for row in rows if row) / 1024


def docker(*args: str) -> str:
    done = subprocess.run(["docker", *args], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"docker {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout

"""What the chaos suite does to processes, and what it reads of those that live on."""

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import OPS_HEADERS

_AGAIN_S = 0.005  # between two looks for processes that the supervisor has started again
# Each look on a connection of its own: what answered the last one may be dead.
_CLIENT = httpx.Client(timeout=5, limits=httpx.Limits(max_keepalive_connections=0))


def page(url: str) -> str:
    """Returns a process's page of metrics. Raises httpx.TransportError."""
    return _CLIENT.get(f"{url}/metrics", headers=OPS_HEADERS.get(url)).text


def metric(url: str, name: str, **labels: str) -> float:
    """Sum of a metric's samples that carry the labels; 0 if there is none."""
    total = 0.0
    for line in page(url).splitlines():
        if line.startswith(name) and all(f'{k}="{v}"' in line for k, v in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


def is_ready(url: str) -> bool:
    try:
        return _CLIENT.get(f"{url}/ready", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


class EngineLog:
    """What the emulated engines have served since this was made, by their own books."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._before = {(url, each["id"]) for url in urls for each in self._records(url)}
        self._aborted_before = self._aborted()

    @staticmethod
    def _records(url: str) -> list[dict[str, Any]]:
        return list(httpx.get(f"{url}/hmas/requests", timeout=10).json()["requests"])

    def _aborted(self) -> float:
        return sum(metric(url, "vllm:request_success_total", finished_reason="abort") for url in self._urls)

    def served(self) -> Counter[tuple[int, int]]:
        """Counts requests by (prompt tokens, output tokens)."""
        return Counter(
            (each["prompt_tokens"], each["output_tokens"])
            for url in self._urls
            for each in self._records(url)
            if (url, each["id"]) not in self._before
        )

    def aborted(self) -> int:
        return int(self._aborted() - self._aborted_before)


@contextmanager
def frozen(mesh: Any, name: str) -> Iterator[None]:
    """Holds a process by SIGSTOP until the `with` block ends."""
    pid = mesh.pid(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def kept_dead(mesh: Any, names: Sequence[str]) -> Iterator[None]:
    """Kills the processes, and each one that the supervisor starts in their place, until the `with` block ends."""
    wanted = {f"HMAS_PROCESS={name}".encode() for name in names}
    children = Path(f"/proc/{mesh.process.pid}/task/{mesh.process.pid}/children")
    over = threading.Event()

    def kill_all() -> None:
        others: set[str] = set()
        while not over.wait(_AGAIN_S):
            for child in children.read_text().split():
                if child in others:
                    continue
                with suppress(OSError):  # it has just ended
                    environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
                    if wanted.intersection(environment):
                        os.kill(int(child), signal.SIGKILL)
                    elif any(variable.startswith(b"HMAS_PROCESS=") for variable in environment):
                        others.add(child)  # one without the variable has not begun its program yet

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A file system of its own in `directory`, with room for `size`; skips the test if this user may mount none."""
    directory.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be mounted by root alone")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextmanager
def full_disk(directory: Path) -> Iterator[None]:
    """Leaves no byte free on the file system of `directory` until the `with` block ends."""
    filler = directory / "filler"
    file = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (2**20, 4096, 1):
            with suppress(OSError):
                while True:
                    os.write(file, bytes(size))
        yield
    finally:
        os.close(file)
        filler.unlink()

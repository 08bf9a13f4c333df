"""Emulated engines that tests start and stop themselves, and the file by which a mesh finds them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from hmas.mesh.ports import free_port


class EngineFarm:
    """Emulated engines, and the file that names those of them that are to be used. `seqs`: the most sequences of each,
    as the file says."""

    def __init__(self, folder: Path, seqs: int = 8) -> None:
        self._seqs = seqs
        self.file = folder / "engines.yaml"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.name()

    def start(self, count: int, model: str = "emulated", port: int = 0, more: Sequence[str] = ()) -> list[str]:
        """Starts engines of a model, and returns their URLs. `port`: that of the only one; 0: any free ports. `more`:
        further arguments of their command."""
        urls = []
        for _ in range(count):
            port = free_port(port)
            argv = [sys.executable, "-m", "hmas.engine", "--profile", "tiny-emulated", "--port", str(port)]
            env = {k: v for k, v in os.environ.items() if not k.startswith("HMAS_")}
            self._processes[f"http://127.0.0.1:{port}"] = subprocess.Popen(
                [*argv, "--served-model-name", model, *more],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=env,
            )
            urls.append(f"http://127.0.0.1:{port}")
            port = 0
        return urls

    def pid(self, url: str) -> int:
        return self._processes[url].pid

    def name(self, *urls: str) -> None:
        """Writes the file as a whole, as a program that keeps it would do."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps([{"url": url, "max_num_seqs": self._seqs} for url in urls]))
        fresh.replace(self.file)

    def stop(self, *urls: str) -> None:
        for url in urls or list(self._processes):
            process = self._processes.pop(url)
            process.kill()
            process.wait()


@contextmanager
def farm_in(folder: Path, seqs: int = 8) -> Iterator[EngineFarm]:
    farm = EngineFarm(folder, seqs)
    try:
        yield farm
    finally:
        farm.stop()


def is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=30).status_code == 200
    except httpx.TransportError:
        return False

"""Another gateway for a running mesh, because `hmas up` starts one."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from hmas.mesh.ports import free_port
from tests.chaos.hurt import is_ready, metric
from tests.conftest import OPS_HEADERS

SECOND = "gateway-2"
_AGAIN_S = 0.3  # between the end of the process and its next start


class SecondGateway:
    """A gateway with the settings of the mesh's own one, on a port of its own. It is started again when it ends."""

    def __init__(self, mesh: Any, name: str = SECOND) -> None:
        process = Path(f"/proc/{mesh.pid('gateway')}")
        variables = (process / "environ").read_text().rstrip("\0").split("\0")
        port, ops_port = str(free_port()), str(free_port())
        self.url, self.ops_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{ops_port}"
        OPS_HEADERS[self.ops_url] = OPS_HEADERS[mesh.gateway_ops_url]
        own = {"HMAS_INSTANCE": name, "HMAS_PROCESS": name, "HMAS_PORT": port, "HMAS_OPS_PORT": ops_port}
        self._env = {**dict(variable.split("=", 1) for variable in variables), **own}
        self._argv = (process / "cmdline").read_text().rstrip("\0").split("\0")
        self._output = (mesh.directory / f"{name}.log").open("wb")
        self._over = threading.Event()
        self._start()
        self._keeper = threading.Thread(target=self._keep)
        self._keeper.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._over.set()
        os.kill(self.pid, signal.SIGKILL)
        self._keeper.join()
        self._output.close()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._argv, env=self._env, stdout=self._output, stderr=subprocess.STDOUT)

    def _keep(self) -> None:
        while True:
            self._process.wait()
            if self._over.wait(_AGAIN_S):
                return
            self._start()


class TwoGateways:
    """A running mesh with a second gateway; processes are named as `hmas up` names them, and `gateway-2`."""

    def __init__(self, mesh: Any, second: SecondGateway) -> None:
        self._mesh, self._second = mesh, second
        self.process = mesh.process  # the supervisor
        self.urls: tuple[str, str] = mesh.url, second.url
        self.engines: list[str] = mesh.state["engine_urls"]
        self.ops_urls: dict[str, str] = {**mesh.state["ops_urls"], SECOND: second.ops_url}
        self.workers = sorted(name for name in self.ops_urls if name.startswith("worker"))

    def pid(self, name: str) -> int:
        return self._second.pid if name == SECOND else int(self._mesh.pid(name))

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid(name), number)

    def gateway_metric(self, name: str) -> list[float]:
        """By gateway."""
        return [metric(self.ops_urls[gateway], name) for gateway in ("gateway", SECOND)]

    def worker_metric(self, name: str, **labels: str) -> float:
        """Sum over the workers."""
        return sum(metric(self.ops_urls[worker], name, **labels) for worker in self.workers)

    def is_whole(self) -> bool:
        """Whether gateways and workers are ready, each gateway has each worker, and each worker its engines."""
        try:
            return (
                all(is_ready(self.ops_urls[name]) for name in (*self.workers, "gateway", SECOND))
                and set(self.gateway_metric("hmas_gateway_workers_connected")) == {len(self.workers)}
                and self.worker_metric("hmas_worker_engine_up") == len(self.engines)
            )
        except httpx.TransportError:
            return False

    async def whole(self, timeout_s: float = 60.0) -> None:
        """Returns when it `is_whole`; TimeoutError after `timeout_s`. A load in this process goes on meanwhile."""
        async with asyncio.timeout(timeout_s):
            while not await asyncio.to_thread(self.is_whole):
                await asyncio.sleep(0.1)


@contextmanager
def with_second_gateway(mesh: Any) -> Iterator[TwoGateways]:
    second = SecondGateway(mesh)
    try:
        two = TwoGateways(mesh, second)
        asyncio.run(two.whole())
        yield two
    finally:
        second.close()

"""The embedded mesh: starts the processes of a plan in order, waits until it serves, stops them in reverse order."""

import asyncio
import os
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from itertools import starmap
from types import TracebackType
from typing import Self

from hmas.mesh.options import MeshOptions
from hmas.mesh.planned_engines import replicas_in
from hmas.mesh.process import ProcessSpec, SupervisedProcess
from hmas.mesh.process_logs import ProcessLogs
from hmas.mesh.processes import CONTROL_AGENTS, MeshPlan, make_plan, worker_env
from hmas.mesh.scrape_file import forget_scrape_file, write_scrape_file
from hmas.mesh.state import forget_state
from hmas.runtime.settings import wrong_variables

READY_TIMEOUT_S = 60.0
ENGINE_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 5.0
LOGS_EVERY_S = 0.25
STORE_EVERY_S = 5.0
STORE_FAILING_S = 30.0
STORE_ROOM_BYTES = 4 * 2**20
STORE_REST_S = 60.0  # between two restarts of NATS
# Whether a process of this mesh answers at all; its certificate may be for other names than this machine's.
_UNCHECKED = ssl._create_unverified_context()


class MeshFailed(Exception):
    """A process of the mesh did not become ready."""


class Mesh:
    """An embedded mesh: inside `async with Mesh(options, alarm) as mesh:` it serves at `mesh.plan.gateway_url`.

    `alarm(process, line)` gets log lines that look like warnings or errors, and a line for each death and restart of a
    process; it must not block. Entering raises MeshFailed.
    """

    def __init__(self, options: MeshOptions, alarm: Callable[[str, str], None] = lambda name, line: None) -> None:
        self.options = options
        self.plan: MeshPlan = make_plan(options)
        self.logs = ProcessLogs(options.data_dir / "logs", alarm)
        self._alarm = alarm
        self._env: dict[str, str] = {}
        self.processes: dict[str, SupervisedProcess] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._scaling: asyncio.Task[None] | None = None  # what starts and drains the engines of a plan

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start(self) -> None:
        wrong = wrong_variables(os.environ)
        for variable, advice in wrong.items():
            self._alarm("settings", f"{variable}: {advice}")
        unset = {*wrong, "PYTHONDONTWRITEBYTECODE"}  # what was told here needs no telling by every process
        self._env = {k: v for k, v in os.environ.items() if k not in unset}
        self._watchers.append(asyncio.create_task(self._follow_logs()))
        for spec in self.plan.processes:
            self.launch(spec)
            if spec.name in self.plan.first:
                await self._wait_ready(spec.name, self.plan.ready_urls[spec.name])
        own = {name: url for name, url in self.plan.ready_urls.items() if name not in self.plan.attached}
        await asyncio.gather(*map(self._wait_attached, self.plan.attached), *starmap(self._wait_ready, own.items()))
        await self._wait_connected()
        pids = {name: p.pid for name, p in self.processes.items() if p.pid is not None}
        write_scrape_file(self.options.data_dir, self.plan.ops_urls)
        self.plan.state(pids).write(self.options.data_dir)
        if self.plan.planned is not None:
            self._scaling = asyncio.create_task(self.plan.planned.follow(self, self._ordered))
        if "nats" in self.processes:
            self._watchers.append(asyncio.create_task(self._heal_store()))

    def launch(self, spec: ProcessSpec) -> None:
        """Starts a process, and again when it dies."""
        process = SupervisedProcess(spec, self._env, self.logs.add(spec.name), self.logs.say)
        self.processes[spec.name] = process
        self._tasks[spec.name] = asyncio.create_task(process.run())

    async def retire(self, name: str) -> None:
        """Ends a process for good, and forgets it."""
        await self.processes[name].stop()
        del self.processes[name]
        await self._tasks.pop(name)
        self.logs.drop(name)

    async def failed(self) -> None:
        """Returns never while the mesh is supervised. Raises MeshFailed if the supervision of a process has ended by an
        error of its own, because nothing would start that process again."""
        scaling = [self._scaling] if self._scaling is not None else []
        tasks = [*self._tasks.values(), *self._watchers, *scaling]
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise MeshFailed(f"a part of the supervisor failed: {error!r}") from error

    async def serve_model(self, engine_url: str, model: str) -> None:
        """Takes over that an engine of `options.unnamed` serves this model: if it is not the one that its worker was
        started for, that starts again."""
        expected = self.options.pool_of(engine_url)
        models = {**self.options.models, engine_url: model}
        self.options = replace(self.options, models=models, unnamed=self.options.unnamed - {engine_url})
        if model == expected:
            return
        (worker,) = (name for name, urls in self.plan.attached.items() if urls == (engine_url,))
        env = worker_env(self.options, (engine_url,))
        await self.processes[worker].restart(f"{engine_url} serves {model}", env)

    async def _follow_logs(self) -> None:
        while True:
            self.logs.poll()
            await asyncio.sleep(LOGS_EVERY_S)

    async def _heal_store(self) -> None:
        """Restarts NATS when it does not store what control agents decide although the disk has room.

        After a full disk a NATS server writes to the stream that failed no more until it is started again.
        """
        store = self.options.data_dir
        while True:
            await asyncio.sleep(STORE_EVERY_S)
            failing_s = max([await self._metric(name, "hmas_bucket_failing_seconds") for name in CONTROL_AGENTS])
            if failing_s >= STORE_FAILING_S and shutil.disk_usage(store).free >= STORE_ROOM_BYTES:
                await self.processes["nats"].restart(f"it has not stored a decision for {failing_s:.0f} s")
                await asyncio.sleep(STORE_REST_S)

    async def _wait_ready(self, name: str, url: str) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + READY_TIMEOUT_S
        while not await asyncio.to_thread(_answers, url):
            if self.processes[name].refused:
                raise MeshFailed(self.logs.tail(name, 1))
            if loop.time() > deadline_s or self.processes[name].restarts > 2:
                raise MeshFailed(
                    f"the process {name} did not become ready ({url}); its last log lines:\n{self.logs.tail(name)}"
                )
            await asyncio.sleep(0.1)

    async def _wait_attached(self, worker: str) -> None:
        """Waits until a worker runs, and then a moment for its engines: one that is down stops no mesh."""
        await self._wait_ready(worker, f"{self.plan.ops_urls[worker]}/health")
        try:
            async with asyncio.timeout(ENGINE_TIMEOUT_S):
                await self._wait_ready(worker, self.plan.ready_urls[worker])
        except TimeoutError:
            engines = ", ".join(self.plan.attached[worker])
            self._alarm(worker, f"{engines} cannot be used yet: the mesh serves without, until it can")

    async def _metric(self, process: str, name: str) -> float:
        """Returns the sum of a metric's samples of a process without labels; 0 if they cannot be read."""
        text = await self._metrics(process)
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))

    async def _ordered(self) -> dict[str, int]:
        """Returns how many engines of each type the controller orders; empty if it has not told."""
        return replicas_in(await self._metrics("meta"))

    async def _metrics(self, process: str) -> str:
        """Returns the metrics of a process; empty if they cannot be read."""
        return await asyncio.to_thread(_text, self.plan.state({}).ops_request(f"{self.plan.ops_urls[process]}/metrics"))

    async def _wait_connected(self) -> None:
        """Waits until the gateway is connected to all workers, known by their heartbeats.

        The wait ends without an error after `CONNECT_TIMEOUT_S`, because the gateway serves with fewer workers as well.
        """
        wanted = sum(name.startswith("worker") for name in self.processes)
        deadline_s = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline_s:
            if await self._metric("gateway", "hmas_gateway_workers_connected") >= wanted:
                return
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Stops the processes: the gateway first, so that its open requests still complete, then the others together,
        and NATS last. It takes no longer than the graces of the three."""
        if self._scaling is not None:
            self._scaling.cancel()
            await asyncio.gather(self._scaling, return_exceptions=True)
        names = list(self.processes)
        first, last = [n for n in names if n == "gateway"], [n for n in names if n == "nats"]
        for stage in (first, [n for n in names if n not in (*first, *last)], last):
            await asyncio.gather(*(self.processes[name].stop() for name in stage))
            await asyncio.gather(*(self._tasks[name] for name in stage), return_exceptions=True)
        for task in self._watchers:
            task.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self.logs.poll()
        forget_state(self.options.data_dir)
        forget_scrape_file(self.options.data_dir)


def _answers(url: str) -> bool:
    """Tells whether `url` answers with a status below 300; for `tcp://host:port` a connection is enough."""
    if url.startswith("tcp://"):
        import socket

        host, port = url.removeprefix("tcp://").split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0
    try:
        with urllib.request.urlopen(url, timeout=1.0, context=_UNCHECKED) as reply:
            return bool(reply.status < 300)
    except (urllib.error.URLError, OSError):
        return False


def _text(page: urllib.request.Request) -> str:
    """Returns the text of a page; empty if it cannot be read."""
    try:
        with urllib.request.urlopen(page, timeout=1.0) as reply:
            return str(reply.read().decode())
    except (urllib.error.URLError, OSError):
        return ""

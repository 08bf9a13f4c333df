"""The emulated engines of `hmas up --plan`: as many of each type as the controller orders, started and drained as an
orchestrator would."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from hmas.laws.plan_steps import alike_types, plan_fault
from hmas.mesh.options import MeshOptions
from hmas.mesh.planned_pools import PlanFolder, PlannedPools, budget_of, cards_taken
from hmas.mesh.process import ProcessSpec
from hmas.runtime.catalogue_file import read_catalogue, render_catalogue, shipped_catalogue
from hmas.runtime.plan_file import read_plan, rendered_plan

LOOK_EVERY_S = 0.5
DRAIN_S = 3600.0  # for which workers let requests go on at an engine that is no longer named
GRACE_S = 10.0  # in which what came between the last look and the end of an idle engine is still answered
UNREAD_S = 5.0  # in which workers have read that an engine is no longer named, twice over
ANSWER_S = 2.0
_RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")


def with_plan(options: MeshOptions, plan: Path | None, catalogue: Path | None, gpus: Sequence[str]) -> MeshOptions:
    """Returns the options of a mesh that carries out the plan in a file, if there is one; its types are of the
    catalogue in a file, by default of the one that ships. It may use the cards of `gpus`, such as 16xh100, by default
    those that it takes. Raises ValueError if that is impossible, and OSError if a file cannot be read."""
    if plan is None:
        if catalogue is not None or gpus:
            raise ValueError("--catalogue and --gpus say what a plan is made of: give --plan, too")
        return options
    if options.engine_urls or options.emulated_roles:
        raise ValueError("--plan starts its engines itself: leave --engine out, and --prefill and --decode")
    known = shipped_catalogue() if catalogue is None else read_catalogue(catalogue)
    if (alike := alike_types(known)) is not None:
        raise ValueError(f"engines of {alike[0]} and {alike[1]} cannot be told apart: keep one in the catalogue")
    plans = read_plan(plan, known)
    cards = tuple(map(budget_of, gpus)) or cards_taken(plans, known)
    if fault := plan_fault(plans, known, cards):
        raise ValueError(f"the plan {plan} cannot be carried out: {fault}")
    folder = PlanFolder(options.data_dir.resolve() / "plan")
    sources = {f"file+{folder.engines(number)}": each.pool for number, each in enumerate(plans, 1)}
    return replace(
        options,
        planned=PlannedPools(plans, known, cards),
        engine_urls=tuple(sources),
        models=sources,
        model=plans[0].pool,
    )


@dataclass(frozen=True, slots=True)
class PlannedEngine:
    """One emulated engine: its number among those of its type, and its port. With `starts_s` it serves only once these
    seconds are over, as one that loads its model."""

    type: str
    pool: str
    number: int
    port: int
    starts_s: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.type}-{self.number}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class EngineHost(Protocol):
    """What runs processes of the mesh."""

    def launch(self, spec: ProcessSpec) -> None: ...

    async def retire(self, name: str) -> None:
        """Ends a process for good, once what it serves has ended."""
        ...


class PlannedEngines:
    """The engines of a plan as they are now. An engine that leaves is taken from the file of its pool first, and ended
    when it has nothing left to do; the last one that was started leaves first."""

    def __init__(
        self, planned: PlannedPools, folder: PlanFolder, port: Callable[[], int], engine: Callable[..., list[str]]
    ) -> None:
        """`engine(*args)` is the command of an engine with these arguments."""
        self._planned, self._port, self._command = planned, port, engine
        self._files = folder
        self._pools = planned.pools()
        self._numbers = {each.pool: number for number, each in enumerate(planned.plans, 1)}
        self._engines: list[PlannedEngine] = []
        self._leaving: dict[PlannedEngine, asyncio.Task[None]] = {}

    @property
    def folder(self) -> Path:
        """Where the plan's files are."""
        return self._files.folder

    @property
    def cards(self) -> str:
        """The cards that a plan may use, such as 16xh100."""
        return self._planned.cards

    def first(self) -> list[ProcessSpec]:
        """Writes the plan's files and returns its engines, which serve at once."""
        self._files.write(self._files.catalogue, render_catalogue(self._planned.catalogue))
        for path in (self._files.first, self._files.plan):
            self._files.write(path, rendered_plan(self._planned.plans))
        for group in (group for each in self._planned.plans for group in each.groups):
            for _ in range(group.count):
                self._engines.append(self._new(group.type, 0.0))
        self._name()
        return [self._spec(each) for each in self._engines]

    async def follow(self, host: EngineHost, ordered: Callable[[], Awaitable[Mapping[str, int]]]) -> None:
        """Starts and drains engines as they are ordered, until it is cancelled. `ordered()` is how many of each type
        there shall be; a type that it does not name keeps what it has."""
        try:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                for name, count in (await ordered()).items():
                    if name in self._pools:
                        self._towards(host, name, count)
                for engine in [each for each, task in self._leaving.items() if task.done()]:
                    self._leaving.pop(engine).result()
        finally:
            for task in self._leaving.values():
                task.cancel()
            await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    def _towards(self, host: EngineHost, name: str, count: int) -> None:
        here = [each for each in self._engines if each.type == name]
        for _ in range(count - len(here)):
            engine = self._new(name, self._planned.catalogue.named(name).start_s)
            self._engines.append(engine)
            host.launch(self._spec(engine))
        for engine in here[count:]:
            self._engines.remove(engine)
            self._leaving[engine] = asyncio.create_task(self._drain(host, engine))
        if len(here) != count:
            self._name()

    async def _drain(self, host: EngineHost, engine: PlannedEngine) -> None:
        await asyncio.sleep(UNREAD_S)
        while await asyncio.to_thread(_busy, engine.url):  # noqa: ASYNC110 - another process tells it
            await asyncio.sleep(LOOK_EVERY_S)
        await host.retire(engine.name)

    def _new(self, name: str, starts_s: float) -> PlannedEngine:
        taken = {each.number for each in (*self._engines, *self._leaving) if each.type == name}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        return PlannedEngine(name, self._pools[name], number, self._port(), starts_s)

    def _spec(self, engine: PlannedEngine) -> ProcessSpec:
        argv = self._command(
            "--catalogue", str(self._files.catalogue), "--profile", engine.type, "--port", str(engine.port),
            "--served-model-name", engine.pool, "--start-delay-s", f"{engine.starts_s:g}",
            "--shutdown-grace-s", f"{GRACE_S:.0f}",
        )  # fmt: skip
        return ProcessSpec(engine.name, argv, stop_grace_s=GRACE_S + 2.0, prompt=True)

    def _name(self) -> None:
        """Writes for each pool the engines that may be used."""
        for pool, number in self._numbers.items():
            entries = [self._entry(each) for each in self._engines if each.pool == pool]
            self._files.write(self._files.engines(number), json.dumps(entries, indent=1))

    def _entry(self, engine: PlannedEngine) -> dict[str, object]:
        kind = self._planned.catalogue.named(engine.type)
        return {
            "name": engine.name, "url": engine.url, "kind": "emulated", "model": kind.model,
            "hardware": f"{kind.hardware}x{kind.gpus}", "max_num_seqs": kind.max_num_seqs,
        }  # fmt: skip


def replicas_in(metrics: str) -> dict[str, int]:
    """Returns how many engines of each type are ordered, by the controller's metrics."""
    found = (family for family in text_string_to_metric_families(metrics) if family.name == "hmas_plan_replicas")
    return {sample.labels["type"]: round(sample.value) for family in found for sample in family.samples}


def _busy(url: str) -> bool:
    """Whether an engine has requests. One that does not answer has none that could end."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=ANSWER_S) as reply:
            families = list(text_string_to_metric_families(reply.read().decode()))
    except (urllib.error.URLError, OSError):
        return False
    return any(sample.value for family in families for sample in family.samples if sample.name in _RUNNING)

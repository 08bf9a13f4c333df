"""A study: one question, as cells that are computed once each, the rows made of them, and a page that tells them."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from experiments.pages.goal import Goal
from hmas_lab.sim.cells import Cell, code_of, compute
from hmas_lab.sim.experiment import Experiment
from hmas_lab.sim.provenance import WITH_MESH, source_digest

CORES = os.cpu_count() or 1
RESULTS, REPORT = Path("docs/results"), Path(__file__).with_name("report")
C = TypeVar("C")
R = TypeVar("R")
Figures = dict[str, Any]


class Finished(Protocol):
    """The finished cells: a store of them, or a dictionary."""

    def get(self, cell: Any, /) -> Figures | None:
        """Returns the figures of a cell; None if it is not computed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says. A study reads those that its `takes` names; a path is None where none was given.
    `only` names parts of the study, `at` loads in λ*; without any, all are run."""

    out: Path = RESULTS
    seeds: int = 5
    seconds: float = 0.0
    rate: float = 0.0
    processes: int = 1
    cells: Path = Path("out/sim-cells")
    data: Path | None = None
    apart: Path | None = None
    judge: Path | None = None
    files: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    at: tuple[float, ...] = ()
    pages_only: bool = False
    quick: bool = False
    full: tuple[str, ...] = ()

    @property
    def numbers(self) -> range:
        """The seeds."""
        return range(1, self.seeds + 1)

    def agentic(self, *more: str) -> Path:
        """Returns the folder of data, which must hold recorded workflows and folders `more`. Raises ValueError if it
        does not."""
        needed = ("agentic", *more)
        if self.data is None or not all((self.data / name).is_dir() for name in needed):
            wanted = " and ".join(f"{name}/" for name in needed)
            raise ValueError(f"this needs recorded workflows: give --data FOLDER with {wanted} in it")
        return self.data

    def part(self, experiment: Experiment) -> Experiment:
        """Returns the experiment with the workloads that `only` names and the loads `at` alone. Raises ValueError if
        there is no such workload."""
        names = {spec.name for spec in experiment.workloads}
        if unknown := [name for name in self.only if name not in names]:
            raise ValueError(f"no workload {', '.join(unknown)}: there are {', '.join(sorted(names))}")
        workloads = tuple(spec for spec in experiment.workloads if not self.only or spec.name in self.only)
        loads = tuple(load for load in experiment.loads if not self.at or load in self.at)
        return replace(experiment, workloads=workloads, loads=loads)


def plain(row: Any) -> Any:
    """Returns a row as plain data."""
    return asdict(row) if is_dataclass(row) and not isinstance(row, type) else row


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Generic[C, R]):
    """What is asked is `about`, and `template` the template of the page, None for that of its name in `report`.

    `cells` yields the cells in batches, and may look up what came of the batches before, on which the next ones may
    depend. `compute` returns the figures of a cell as plain data, in another process if several are asked for; it also
    gets what `given` returns (of a run of the simulator, its rate). `code` returns a digest of the code on which the
    figures depend.

    `rows` makes rows of what is finished, `goals` judges them, and `values` returns what else the template needs; None:
    there is no page but what `also` returns. Rows are written as `{name}.json`, each as `plain` has it. `also` returns
    further files by name, or another one of that name: a page as text, data as what JSON can hold, None for no such
    file. `explain`: below the page, columns that are the same in all rows are explained."""

    name: str
    about: str
    template: Path | None = None
    takes: tuple[str, ...] = ("out", "seeds", "processes", "cells", "pages_only")
    defaults: Options = field(default_factory=Options)
    cells: Callable[[Options, Finished], Iterable[Sequence[C]]] = lambda options, found: ()
    compute: Callable[..., Figures] = compute
    given: Callable[[C, Options, Finished], tuple[Any, ...]] = lambda cell, options, found: at_load(cell, found)
    code: Callable[[C], str] = code_of  # type: ignore[assignment]  # of the simulator's own cells
    rows: Callable[[Options, Finished], Sequence[R]] = lambda options, found: ()
    goals: Callable[[Sequence[R]], Sequence[Goal]] = lambda rows: ()
    values: Callable[[Sequence[R], Options, Finished], Mapping[str, object]] | None = None
    plain: Callable[[R], Any] = plain
    also: Callable[[Sequence[R], Options, Finished], dict[str, Any]] = lambda rows, options, found: {}

    explain: bool = False

    @property
    def page(self) -> Path:
        """The template of the page."""
        return self.template or REPORT / f"{self.name.replace('-', '_')}.md.j2"


def written(row: Callable[..., R], path: Path) -> list[R]:
    """Returns the rows of a file that a study has written, each made by `row`; none if there is no such file."""
    if not path.exists():
        return []
    return [row(**document) for document in json.loads(path.read_text(encoding="utf-8"))]


def code_of_mesh(cell: object) -> str:
    """Returns the digest of the code of the mesh and of its simulator."""
    return source_digest(WITH_MESH)


def at_load(cell: object, found: Finished) -> tuple[float, ...]:
    """Returns the rate that a run or a bound of the simulator is offered, in requests per second; nothing for a cell of
    another kind. Its λ* must be there."""
    if not isinstance(cell, Cell) or cell.kind == "capacity":
        return ()
    if cell.absolute:
        return (cell.load,)
    capacity = found.get(cell.capacity)
    assert capacity is not None, f"no λ* of {cell}"
    return (cell.load * capacity["rate_rps"],)

"""Runs the cells of studies, that is their single runs and bounds: takes stored results, and computes the missing ones
in several processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

from experiments.study import Figures, Finished, Options, Study, at_load
from hmas_lab.sim.cells import Cell, CellStore, compute
from hmas_lab.sim.experiment import Experiment

Progress = Callable[[int, int, str], None]


def cells_of(experiment: Experiment) -> list[Cell]:
    """Returns the cells that an experiment needs: every run of each workload, load, seed and system, and its upper
    bound."""
    cells: dict[Cell, None] = {}
    loads = (experiment.rate_rps,) if experiment.rate_rps is not None else experiment.loads
    for workload in experiment.workloads:
        for load in loads:
            for seed in experiment.seeds:
                for system in experiment.systems:
                    cell = Cell(
                        kind="run",
                        profile=experiment.profile,
                        engines=experiment.engines,
                        workload=workload,
                        load=load,
                        absolute=experiment.rate_rps is not None,
                        seed=seed,
                        system=system,
                        workers=experiment.workers,
                        gateways=experiment.gateways,
                        faults=experiment.faults,
                        chunk_tokens=experiment.chunk_tokens,
                        capacity_s=experiment.capacity_s,
                    )
                    cells[cell.bound] = cells[cell] = None
    return list(cells)


def label(cell: Any) -> str:
    if not isinstance(cell, Cell):
        return str(cell)
    return f"{cell.kind} {cell.workload.name} {cell.load:g} {cell.system} seed {cell.seed}"


def fill(study: Study[Any, Any], options: Options, store: CellStore, progress: Progress) -> None:
    """Computes the missing cells of a study, batch by batch."""
    for batch in study.cells(options, store):
        execute(
            batch, store, options.processes, progress, study.compute, lambda c, found: study.given(c, options, found)
        )


def execute(
    cells: Iterable[Any],
    store: CellStore,
    processes: int,
    progress: Progress,
    computed: Callable[..., Figures] = compute,
    given: Callable[[Any, Finished], tuple[Any, ...]] = at_load,
) -> None:
    """Computes every missing cell and stores it. All λ* are computed before the runs whose load is given in λ*. Runs
    are ordered by seed, so that an interrupted experiment has some seeds of every system. `progress` is called with the
    number of finished cells, their total and a label. The first failure cancels the rest and is raised."""
    wanted = sorted(dict.fromkeys(cells), key=lambda cell: getattr(cell, "seed", 0))
    simulated = [cell for cell in wanted if isinstance(cell, Cell)]
    capacities = list(dict.fromkeys(c.capacity for c in simulated if c.kind != "capacity" and not c.absolute))
    done, total = 0, len(wanted) + len(capacities)
    for some in (capacities, wanted):
        missing = [cell for cell in some if store.get(cell) is None]
        done += len(some) - len(missing)
        progress(done, total, "taken from earlier runs")
        for cell, figures in _computed([(computed, cell, *given(cell, store)) for cell in missing], processes):
            store.put(cell, figures)
            done += 1
            progress(done, total, label(cell))


def _computed(calls: Sequence[tuple[Any, ...]], processes: int) -> Iterator[tuple[Any, Figures]]:
    """Yields the first argument and the result of each call (function, argument, ...), as they come."""
    if processes == 1:
        yield from ((cell, function(cell, *more)) for function, cell, *more in calls)
        return
    waiting = list(calls)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        open_futures: dict[Future[Figures], Any] = {}
        try:
            while waiting or open_futures:
                while waiting and len(open_futures) < 2 * processes:
                    call = waiting.pop(0)
                    open_futures[pool.submit(*call)] = call[1]
                ready, _ = wait(open_futures, return_when=FIRST_COMPLETED)
                yield from ((open_futures.pop(future), future.result()) for future in ready)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise

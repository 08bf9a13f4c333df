"""Runs the cells of experiments, that is their single simulated runs and bounds: takes stored results, and computes the
missing ones in several processes."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

from hmas.sim.cells import Cell, CellStore, compute
from hmas.sim.experiment import Experiment

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


def label(cell: Cell) -> str:
    return f"{cell.kind} {cell.workload.name} {cell.load:g} {cell.system} seed {cell.seed}"


def execute(experiments: Sequence[Experiment], store: CellStore, processes: int, progress: Progress) -> None:
    """Computes every missing cell of the experiments, as `execute_cells` does."""
    execute_cells([cell for experiment in experiments for cell in cells_of(experiment)], store, processes, progress)


def execute_cells(cells: Iterable[Cell], store: CellStore, processes: int, progress: Progress) -> None:
    """Computes every missing cell and stores it. All λ* are computed before the runs whose load is given in λ*. Runs
    are ordered by seed, so that an interrupted experiment has some seeds of every system. `progress` is called with the
    number of finished cells, their total and a label. The first failure cancels the rest and is raised."""
    wanted = sorted(dict.fromkeys(cells), key=lambda c: c.seed)
    capacities = list(dict.fromkeys(cell.capacity for cell in wanted if not cell.absolute))
    total = len(wanted) + len(capacities)
    rates = {cell: found["rate_rps"] for cell, found in _all(capacities, {}, store, processes, progress, 0, total)}
    offered = {cell: cell.load * (1.0 if cell.absolute else rates[cell.capacity]) for cell in wanted}
    for _ in _all(wanted, offered, store, processes, progress, len(capacities), total):
        pass


def _all(
    cells: Sequence[Cell], rates: dict[Cell, float], store: CellStore, processes: int, progress: Progress,
    before: int, total: int,
) -> Iterable[tuple[Cell, dict[str, Any]]]:  # fmt: skip
    done = before
    missing: list[Cell] = []
    for cell in cells:
        if (found := store.get(cell)) is None:
            missing.append(cell)
            continue
        done += 1
        yield cell, found
    progress(done, total, "taken from earlier runs")
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        open_futures: dict[Future[dict[str, Any]], Cell] = {}
        try:
            while missing or open_futures:
                while missing and len(open_futures) < 2 * processes:
                    cell = missing.pop(0)
                    open_futures[pool.submit(compute, cell, rates.get(cell, 0.0))] = cell
                ready, _ = wait(open_futures, return_when=FIRST_COMPLETED)
                for future in ready:
                    cell = open_futures.pop(future)
                    result = future.result()
                    store.put(cell, result)
                    done += 1
                    progress(done, total, label(cell))
                    yield cell, result
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise

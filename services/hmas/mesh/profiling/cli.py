"""The command `hmas profile`."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hmas.engine.core.profile import EngineProfile, parse_profiles
from hmas.mesh.command import run_command
from hmas.mesh.profiling.calibrated_types import by_cell, fit_calibrations
from hmas.mesh.profiling.fitted_types import FittedCell, fit_cell
from hmas.mesh.profiling.known_cells import CELLS, SHIPPED_CELLS
from hmas.mesh.profiling.outcome_table import COMMENT, catalogue_of, dropped, fits_table
from hmas.mesh.profiling.silicon import closed_loops
from hmas.runtime.catalogue_file import render_catalogue

app = typer.Typer(no_args_is_help=True)
console = Console() if Console().is_terminal else Console(width=160)
errors = Console(stderr=True)
PUBLISHED = "aiconfigurator's measured serving points (ai-dynamo/aiconfigurator, Apache-2.0)"
CALIBRATIONS = "files of `hmas calibrate`"
CellFit = tuple[str, Callable[[], FittedCell]]  # a cell's name, and what fits it


@app.callback()
def profile() -> None:
    pass


@app.command("fit")
def fit_catalogue(
    data: Annotated[
        Path | None, typer.Option(help="folder with aiconfigurator's table, aiconfigurator_silicon.csv.gz")
    ] = None,
    calibrations: Annotated[
        list[Path] | None, typer.Option("--from", help="file of `hmas calibrate`; may be repeated")
    ] = None,
    cell: Annotated[
        list[str] | None,
        typer.Option(
            help="with --data: a model, engine and card to fit; may be repeated; default: those that ship "
            f"({', '.join(each.name for each in SHIPPED_CELLS)}). Others: "
            f"{', '.join(name for name, each in CELLS.items() if each not in SHIPPED_CELLS)}"
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="catalogue to write")] = Path("out/catalogue.yaml"),
) -> None:
    """Fit instance types, engines on 1 to 8 cards, and write them as a catalogue for plans. A cell that cannot be
    fitted is left out with the reason."""

    async def main() -> int:
        if data is None and not calibrations:
            raise ValueError("nothing to fit: give --data FOLDER, --from CALIBRATION, or both")
        fitted, refused = _fitted(data, calibrations or (), cell or [each.name for each in SHIPPED_CELLS])
        for line in refused:
            errors.print(f"left out: {line}", style="yellow", soft_wrap=True, markup=False)
        if not fitted:
            raise ValueError("no cell could be fitted: no catalogue is written")
        source = "; ".join([*([PUBLISHED] if data else []), *([CALIBRATIONS] if calibrations else [])])
        text = render_catalogue(catalogue_of(fitted, source), COMMENT)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        console.print(fits_table(fitted))
        if data is not None:
            console.print(dropped(fitted), soft_wrap=True)
        console.print(f"wrote {out}: {sum(len(each.types) for each in fitted)} instance types", soft_wrap=True)
        return 0

    run_command(main)


def _fitted(
    data: Path | None, calibrations: Sequence[Path], cells: Sequence[str]
) -> tuple[list[FittedCell], list[str]]:
    """Returns the cells that could be fitted, and a line on each that could not. Raises ValueError for an unknown cell
    or a faulty file, and OSError."""
    found, refused = [], []
    grouped, untold = by_cell([each for path in calibrations for each in _profiles(path)])
    fits: list[CellFit] = list(_published(data, cells)) if data is not None else []
    fits += [
        (f"{model} on {card}", partial(fit_calibrations, model, card, own)) for (model, card), own in grouped.items()
    ]
    for name, fit in fits:
        try:
            found.append(fit())
        except ValueError as error:
            refused.append(f"{name}: {error}")
    return found, [*untold, *refused]


def _published(data: Path, names: Sequence[str]) -> Iterator[CellFit]:
    if unknown := [name for name in names if name not in CELLS]:
        raise ValueError(f"no cell {', '.join(unknown)}: there are {', '.join(CELLS)}")
    loops = closed_loops(data, [CELLS[name].key for name in names])
    for name in names:
        yield name, partial(fit_cell, CELLS[name], loops[CELLS[name].key])


def _profiles(path: Path) -> list[EngineProfile]:
    try:
        return list(parse_profiles(path.read_text(encoding="utf-8")).values())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None

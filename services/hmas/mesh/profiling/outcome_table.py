"""The catalogue that was fitted, and a table of how well."""

from collections.abc import Sequence

from rich.table import Table

from hmas.contracts.pool_plan import Catalogue
from hmas.mesh.profiling.fitted_types import FittedCell

COMMENT = """\
Written by `hmas profile fit`. A measured type's costs are fitted to measurements of its own number of cards, and
`error` is their mean relative error there. An interpolated one's come from other numbers of cards, and `error` is the
mean error of such costs where they could be checked. start_s is assumed, so measure it. usd_h 0: no price is known."""


def catalogue_of(cells: Sequence[FittedCell], source: str) -> Catalogue:
    """Returns the types of all cells. Raises ValueError if two have one name."""
    return Catalogue(types=tuple(each.kind for cell in cells for each in cell.types), source=source)


def fits_table(cells: Sequence[FittedCell]) -> Table:
    """Returns a row for each type with its errors, and one for each cell with the mean of those left out."""
    table = Table(title="relative error of the time per token", title_justify="left")
    for name in ("cell", "cards", "points", "origin", "own fit", "left out (LTO)"):
        table.add_column(name, justify="left" if name in ("cell", "origin") else "right", no_wrap=True)
    for cell in cells:
        for each in cell.types:
            origin = each.kind.origin.value
            table.add_row(
                cell.name, str(each.kind.gpus), str(each.points), origin, _share(each.own_error), _share(each.left_out)
            )
        if cell.scaling is not None:
            law = "mean, with talk" if cell.scaling.scaling.talk_s else "mean"
            table.add_row("", "", "", law, "", _share(cell.scaling.mean), end_section=True)
    return table


def dropped(cells: Sequence[FittedCell]) -> str:
    """Returns how many measurements were not used, and why."""
    sifted = [cell.sifted for cell in cells if cell.sifted is not None]
    return (
        f"measurements used: {sum(len(each.loops) for each in sifted)}; dropped: "
        f"{sum(each.queued for each in sifted)} with a TTFT above 5 s, because requests queued; "
        f"{sum(each.outgrown for each in sifted)} that exceed the KV memory; "
        f"{sum(each.repeated for each in sifted)} that were measured again"
    )


def _share(error: float | None) -> str:
    return "" if error is None else f"{error:.1%}"

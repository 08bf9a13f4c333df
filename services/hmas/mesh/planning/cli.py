"""The command `hmas plan`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Table

from hmas.contracts.pool_plan import Budget, Catalogue, Group
from hmas.laws.layout import described_split
from hmas.laws.placement.demand import PoolDemand
from hmas.laws.placement.fluid_bound import fluid_bound
from hmas.laws.placement.plan_search import Placement, PlacementFound, SearchConfig, search
from hmas.mesh.command import run_command
from hmas.mesh.past_files import read_past
from hmas.mesh.planning.past_demand import demand_in
from hmas.mesh.whatif import seconds
from hmas.runtime.catalogue_file import read_catalogue, shipped_catalogue
from hmas.sim.quick import QuickValue

console = Console() if Console().is_terminal else Console(width=160)


def plan(
    load: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL=FILE...",
            help="a model of the catalogue and the requests that it gets: a file of `hmas whatif --export`, or a trace "
            "in Mooncake's form",
        ),
    ],
    gpus: Annotated[
        list[str], typer.Option(help="the cards that there are, such as 16xh100; repeat it for other hardware")
    ],
    catalogue: Annotated[
        Path | None, typer.Option(help="instance types, as `hmas profile fit` writes them; default: what ships")
    ] = None,
    last: Annotated[str, typer.Option(help="how much of each file counts, from its end: 90s, 5m, 1h")] = "2m",
    out: Annotated[Path | None, typer.Option(help="write the plan to this file, for `hmas whatif --plan`")] = None,
) -> None:
    """Find the engines that keep the most of these requests on time on so many cards: the number of cards of each
    engine, and how many of them each model gets."""

    async def main() -> int:
        known = shipped_catalogue() if catalogue is None else read_catalogue(catalogue)
        budgets = [_budget(each) for each in gpus]
        demands = [_demand(each, seconds(last), known) for each in load]
        found = search(demands, known, budgets, QuickValue(), SearchConfig(), fluid_bound)
        console.print(_table(found, demands, budgets))
        console.print(_verdict(found), soft_wrap=True)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(_rendered(found.best), encoding="utf-8")
            console.print(f"wrote {out}", soft_wrap=True)
        return 0

    run_command(main)


def _budget(text: str) -> Budget:
    found = re.fullmatch(r"(\d{1,5})x([A-Za-z0-9][A-Za-z0-9_-]*)", text.strip())
    if found is None or not int(found[1]):
        raise ValueError(f"--gpus {text!r}: use a number of cards and their kind, such as 16xh100")
    return Budget(found[2].lower(), int(found[1]))


def _demand(text: str, window_s: float, catalogue: Catalogue) -> PoolDemand:
    model, separated, file = text.partition("=")
    models = sorted({each.model for each in catalogue.types})
    if not separated or not file:
        raise ValueError(f"{text!r}: use MODEL=FILE, such as {models[0]}=past.jsonl")
    if model not in models:
        raise ValueError(f"the catalogue has no model {model!r}: it has {', '.join(models)}")
    past = read_past(Path(file))
    return demand_in(past, past.pool or model, model, window_s)


def _table(found: PlacementFound, demands: Sequence[PoolDemand], budgets: Sequence[Budget]) -> Table:
    cards = ", ".join(f"{each.gpus} {each.hardware}" for each in budgets)
    table = Table(title=f"engines on {cards}, by a simulation of the requests given", title_justify="left")
    for name in ("pool", "requests/s", "engines", "classes by TPOT SLO", "cards", "on time"):
        table.add_column(name, justify="left" if name in ("pool", "engines") else "right")
    table.add_column("with one type", justify="left")
    table.add_column("on time", justify="right")
    for demand, best, single in zip(demands, found.best.pools, found.one_type.pools, strict=True):
        table.add_row(
            demand.pool, f"{demand.rate_rps:.1f}", _engines(best.plan.groups), described_split(best.plan.split),
            str(best.cards), f"{best.share:.1%}", _engines(single.plan.groups), f"{single.share:.1%}",
        )  # fmt: skip
    if len(demands) > 1:
        table.add_row(
            "all", "", "", "", str(found.best.cards), f"{found.best.share:.1%}", "", f"{found.one_type.share:.1%}"
        )
    return table


def _engines(groups: Sequence[Group]) -> str:
    return ", ".join(f"{each.count} x {each.type}" for each in groups)


def _verdict(found: PlacementFound) -> str:
    told = "One type is enough for each model. " if found.one_type_is_enough else ""
    if found.gap is not None:
        told += f"No engines on these cards can keep more than {found.bound:.1%} on time ({found.gap:.1%} more)."
    return told.strip()


def _rendered(placement: Placement) -> str:
    pools = {each.plan.pool: {group.type: group.count for group in each.plan.groups} for each in placement.pools}
    return yaml.safe_dump(pools, sort_keys=False)

"""The commands `hmas plan`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hmas.contracts.pool_plan import Budget, Catalogue, Group
from hmas.laws.layout import described_split
from hmas.laws.placement.demand import PoolDemand
from hmas.laws.placement.fluid_bound import fluid_bound
from hmas.laws.placement.past_demand import demand_in
from hmas.laws.placement.plan_search import PlacementFound, SearchConfig, search
from hmas.mesh.client import open_bus
from hmas.mesh.command import run_command
from hmas.mesh.past_files import read_past
from hmas.mesh.planned_pools import PlanFolder, budget_of
from hmas.mesh.planning.running import counts_in, heard, plan_table, steps_table, steps_to, unsettled_in
from hmas.mesh.state import DEFAULT_DATA_DIR, MeshState, read_state
from hmas.mesh.whatif import seconds
from hmas.runtime.catalogue_file import read_catalogue, shipped_catalogue
from hmas.runtime.plan_file import read_plan, rendered_plan
from hmas.sim.quick import QuickValue

app = typer.Typer(no_args_is_help=True)
console = Console() if Console().is_terminal else Console(width=160)

PlannedLoad = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL=FILE...",
        help="a model of the catalogue and the requests that it gets: a file of `hmas whatif --export`, or a trace in "
        "Mooncake's form",
    ),
]
PlanCatalogue = Annotated[
    Path | None,
    typer.Option("--catalogue", help="instance types, as `hmas profile fit` writes them; default: what ships"),
]
RecordEnd = Annotated[str, typer.Option(help="how much of each file counts, from its end: 90s, 5m, 1h")]
PlanPath = Annotated[Path, typer.Argument(metavar="PLAN", help="a plan, as `hmas plan search --out` writes it")]
NatsUrl = Annotated[str | None, typer.Option(help="URL of the mesh's NATS server; default: that of the embedded mesh")]
DataDir = Annotated[Path, typer.Option(envvar="HMAS_DATA_DIR", help="folder of the embedded mesh")]


@app.command("search")
def search_plan(
    load: PlannedLoad,
    gpus: Annotated[
        list[str], typer.Option(help="the cards that there are, such as 16xh100; repeat it for other hardware")
    ],
    catalogue: PlanCatalogue = None,
    last: RecordEnd = "2m",
    out: Annotated[Path | None, typer.Option(help="write the plan to this file")] = None,
) -> None:
    """Find the engines that keep the most of these requests on time on so many cards: the number of cards of each
    engine, and how many of them each model gets."""

    async def main() -> int:
        known = _types(catalogue)
        budgets = [budget_of(each) for each in gpus]
        demands = [_demand(each, seconds(last), known) for each in load]
        found = search(demands, known, budgets, QuickValue(), SearchConfig(), fluid_bound)
        console.print(_table(found, demands, budgets))
        console.print(_verdict(found), soft_wrap=True)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(rendered_plan(each.plan for each in found.best.pools), encoding="utf-8")
            console.print(f"wrote {out}", soft_wrap=True)
        return 0

    run_command(main)


@app.command()
def verify(plan: PlanPath, load: PlannedLoad, catalogue: PlanCatalogue = None, last: RecordEnd = "2m") -> None:
    """Simulate a plan under recorded requests: the share of them that would have been on time."""

    async def main() -> int:
        known = _types(catalogue)
        demands = {each.model: each for each in (_demand(text, seconds(last), known) for text in load)}
        table = Table(title="the plan, by a simulation of the requests given", title_justify="left")
        for name in ("pool", "requests/s", "engines", "classes by TPOT SLO", "on time"):
            table.add_column(name, justify="left" if name in ("pool", "engines") else "right")
        for each in read_plan(plan, known):
            kinds = [known.named(group.type) for group in each.groups for _ in range(group.count)]
            if kinds[0].model not in demands:
                raise ValueError(f"the plan has the model {kinds[0].model}: give {kinds[0].model}=FILE, too")
            demand = demands[kinds[0].model]
            share = QuickValue()(demand, kinds, each.split)
            table.add_row(
                each.pool, f"{demand.rate_rps:.1f}", _engines(each.groups), described_split(each.split), f"{share:.1%}"
            )
        console.print(table)
        return 0

    run_command(main)


@app.command("show")
def show_running(
    catalogue: PlanCatalogue = None, nats_url: NatsUrl = None, data_dir: DataDir = DEFAULT_DATA_DIR
) -> None:
    """Show the plan that the running mesh follows, beside the engines that there are, and the steps that are left."""

    async def main() -> int:
        known = _types_of_mesh(catalogue, nats_url, data_dir)
        view = await heard(open_bus(nats_url, data_dir), plan=True)
        if (told := view.plan) is not None:
            counts = counts_in(view, known, told.plans, {each.type: each.count for each in told.ordered})
            console.print(plan_table(told, counts))
            console.print(steps_table(told.steps, told.plans, unsettled_in(counts)))
        return 0

    run_command(main)


@app.command("diff")
def diff_running(
    plan: PlanPath,
    catalogue: PlanCatalogue = None,
    gpus: Annotated[
        list[str] | None, typer.Option(help="the cards that there are; default: those that the plan takes or that run")
    ] = None,
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Show the steps from the engines of the running mesh to those of a plan, with their seconds. Nothing changes."""

    async def main() -> int:
        known = _types_of_mesh(catalogue, nats_url, data_dir)
        plans = read_plan(plan, known)
        cards = gpus or (read_state(data_dir).plan_cards.split(",") if nats_url is None else [])
        view = await heard(open_bus(nats_url, data_dir), plan=False)
        console.print(steps_table(steps_to(view, plans, known, [budget_of(each) for each in cards if each]), plans))
        return 0

    run_command(main)


@app.command()
def apply(plan: PlanPath, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Let the mesh of `hmas up --plan` follow another plan: nothing that runs is ended. In a cluster, give the meta
    controller the file by HMAS_PLAN_FILE."""

    async def main() -> int:
        state, files = _planned(data_dir)
        known = read_catalogue(files.catalogue)
        plans, first = read_plan(plan, known), read_plan(files.first, known)
        if strange := {each.pool for each in plans} ^ {each.pool for each in first}:
            raise ValueError(f"a plan for this mesh must have its pools, and no others: {', '.join(sorted(strange))}")
        view = await heard(open_bus(None, data_dir), plan=False)
        steps = steps_to(view, plans, known, [budget_of(each) for each in state.plan_cards.split(",")])
        files.write(files.plan, rendered_plan(plans))
        console.print(steps_table(steps, plans))
        told = "the mesh follows it now, unless the console's plan outranks it: `hmas plan show` tells"
        console.print(told, soft_wrap=True)
        return 0

    run_command(main)


@app.command()
def lift(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Let the controller of `hmas up --plan` plan by itself, unless the console's plan is in force: it begins with the
    engines that there are, and searches for better ones every ten minutes."""

    async def main() -> int:
        _, files = _planned(data_dir)
        files.write(files.plan, "")
        return 0

    run_command(main)


def _planned(data_dir: Path) -> tuple[MeshState, PlanFolder]:
    """Returns the embedded mesh, and the files of its plan. Raises ValueError if it follows none, and NoMesh."""
    state = read_state(data_dir)
    if not state.plan_folder:
        raise ValueError("this mesh follows no plan: start it with `hmas up --plan`")
    return state, PlanFolder(Path(state.plan_folder))


def _types(catalogue: Path | None) -> Catalogue:
    return shipped_catalogue() if catalogue is None else read_catalogue(catalogue)


def _types_of_mesh(catalogue: Path | None, nats_url: str | None, data_dir: Path) -> Catalogue:
    """Returns the catalogue that is named, otherwise that of the embedded mesh, otherwise the one that ships."""
    if catalogue is None and nats_url is None and (folder := read_state(data_dir).plan_folder):
        return read_catalogue(PlanFolder(Path(folder)).catalogue)
    return _types(catalogue)


def _demand(text: str, window_s: float, catalogue: Catalogue) -> PoolDemand:
    model, separated, file = text.partition("=")
    models = sorted({each.model for each in catalogue.types})
    if not separated or not file:
        raise ValueError(f"{text!r}: use MODEL=FILE, such as {models[0]}=past.jsonl")
    if model not in models:
        raise ValueError(f"the catalogue has no model {model!r}: it has {', '.join(models)}")
    past = read_past(Path(file))
    return demand_in(past.rows, past.pool or model, model, window_s)


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

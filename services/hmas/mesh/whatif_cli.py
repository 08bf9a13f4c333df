"""The options of `hmas whatif`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hmas.contracts.control import TopologyName
from hmas.contracts.pool_plan import Budget
from hmas.contracts.rehearsal import PoolEngine, PoolFacts
from hmas.engine.core.profile import EngineProfile
from hmas.mesh.client import open_bus
from hmas.mesh.command import run_command
from hmas.mesh.past_files import Past, read_past, write_mooncake, write_own
from hmas.mesh.planned_pools import budget_of
from hmas.mesh.state import DEFAULT_DATA_DIR, MeshState, read_state
from hmas.mesh.whatif import (
    ABSTAINS,
    asked,
    candidates_of,
    data_of,
    engine_count,
    listen,
    render,
    seconds,
)
from hmas.mesh.whatif_plan import WantedEngines, planned
from hmas.sim.past.fitted import CHUNK_TOKENS
from hmas.sim.past.rehearse import RehearsalQuestion, named_profile

Slos = Annotated[
    list[str] | None,
    typer.Option(help="other SLOs in ms of a tenant or task type, such as chat:ttft=800,tpot=60; may be repeated"),
]
EngineProfileName = Annotated[
    str,
    typer.Option(help="the engines' profile: a name, or a file of `hmas calibrate`; default: fitted to their pace"),
]
MaxNumBatchedTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="the engines' --max-num-batched-tokens, which they do not tell; default: the profile's, "
        f"or {CHUNK_TOKENS} without one",
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(help="other engines, ordered when that time begins: a file of `hmas plan search`"),
]
CatalogueFile = Annotated[
    Path | None, typer.Option(help="the plan's instance types, as `hmas profile fit` writes them; default: what ships")
]
PlanRoom = Annotated[
    list[str] | None,
    typer.Option("--gpus", help="the cards that --plan may use, such as 16xh100; default: those of `hmas up --plan`"),
]
console = Console() if Console().is_terminal else Console(width=160)


def whatif(
    file: Annotated[
        Path | None,
        typer.Argument(help="a file of `--export`, or a trace in Mooncake's form; default: the running mesh"),
    ] = None,
    last: Annotated[str, typer.Option(help="how far back: 90s, 5m, 1h")] = "5m",
    topology: Annotated[
        list[str] | None,
        typer.Option(help=f"another topology; repeat the option for several: {', '.join(TopologyName)}"),
    ] = None,
    objective: Annotated[str | None, typer.Option(help="what MaxOnTime maximises: requests or tokens")] = None,
    engines: Annotated[str | None, typer.Option(help="another number of engines: N, or +N or -N of those now")] = None,
    plan: PlanFile = None,
    catalogue: CatalogueFile = None,
    gpus: PlanRoom = None,
    slo: Slos = None,
    profile: EngineProfileName = "",
    max_num_batched_tokens: MaxNumBatchedTokens = None,
    seeds: Annotated[int, typer.Option(min=1, max=20, help="runs of each, with other draws of unknown lengths")] = 1,
    export: Annotated[
        Path | None, typer.Option(help="write the past requests to this file, and simulate nothing")
    ] = None,
    mooncake: Annotated[bool, typer.Option("--mooncake", help="with --export: in Mooncake's form")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the outcome as JSON")] = False,
    pool: Annotated[str | None, typer.Option(help="pool, named after its model; default: the embedded mesh's")] = None,
    nats_url: Annotated[str | None, typer.Option(help="URL of the mesh's NATS server")] = None,
    data_dir: Annotated[
        Path, typer.Option(envvar="HMAS_DATA_DIR", help="folder of the embedded mesh")
    ] = DEFAULT_DATA_DIR,
) -> None:
    """Replay a pool's last requests in simulation: as they were served, and under another topology, other engines or
    SLOs. Ends with 3 where the simulation is not to be believed."""

    async def main() -> int:
        window_s = seconds(last)
        past = read_past(file) if file is not None else await _heard(nats_url, data_dir, pool, window_s)
        if export is not None:
            return _export(past, export, mooncake=mooncake)
        running = read_state(data_dir) if file is None and nats_url is None else None
        emulated = running.profile if running is not None and not profile else ""
        chosen = named_profile(profile or emulated)
        facts, cards = past.facts or _named_engines(chosen, engines), _cards(gpus, running)
        wanted = _wanted(past, facts, engines, plan, catalogue, cards)
        question = RehearsalQuestion(
            window_s=window_s,
            facts=wanted.facts,
            in_force=past.in_force,
            candidates=candidates_of(past, topology or (), objective, wanted, slo or ()),
            seeds=tuple(range(1, seeds + 1)),
            profile=chosen,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        found = await asked(question, past)
        if as_json:
            console.print_json(data=data_of(past, found))
        else:
            console.print(render(past, found, wanted.steps))
        return ABSTAINS if found.abstains else 0

    run_command(main)


async def _heard(nats_url: str | None, data_dir: Path, pool: str | None, window_s: float) -> Past:
    return await listen(open_bus(nats_url, data_dir), pool or read_state(data_dir).pool, window_s)


def _wanted(
    past: Past,
    facts: PoolFacts,
    engines: str | None,
    plan: Path | None,
    catalogue: Path | None,
    cards: Sequence[Budget],
) -> WantedEngines:
    """Returns the engines that the options ask for. Raises ValueError."""
    if plan is None:
        return WantedEngines(engine_count(engines, len(facts.engines)) if engines else None, facts)
    if engines is not None and past.facts is not None:
        raise ValueError("--plan and --engines both say which engines there are: name one of them")
    return planned(past.pool, facts, plan, catalogue, cards)


def _cards(gpus: Sequence[str] | None, running: MeshState | None) -> list[Budget]:
    """Returns the cards that the options name, otherwise those of the embedded mesh; none where nobody knows them."""
    known = running.plan_cards.split(",") if running is not None and running.plan_cards else []
    return [budget_of(each) for each in gpus or known]


def _named_engines(profile: EngineProfile | None, engines: str | None) -> PoolFacts:
    """Returns the engines that the options name, for a past that does not say which served it. Raises ValueError if
    they do not name them."""
    if profile is None or engines is None:
        raise ValueError("it is not known which engines served these requests: name --profile and --engines")
    limits = profile.limits
    engine = PoolEngine(
        max_num_seqs=limits.max_num_seqs, max_model_len=limits.max_model_len,
        kv_capacity_tokens=limits.num_gpu_blocks * limits.block_size, block_size=limits.block_size,
    )  # fmt: skip
    return PoolFacts(engines=(engine,) * engine_count(engines, 0), workers=1)


def _export(past: Past, path: Path, *, mooncake: bool) -> int:
    if mooncake:
        left_out = write_mooncake(past, path)
        console.print(f"wrote {len(past.rows) - left_out} requests to {path}; {left_out} left out that did not finish")
    else:
        write_own(past, path)
        console.print(f"wrote {len(past.rows)} requests to {path}")
    return 0


if __name__ == "__main__":  # as the console asks, without what other commands import
    typer.run(whatif)

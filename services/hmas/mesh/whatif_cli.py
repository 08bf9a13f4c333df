"""The options of `hmas whatif`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hmas.contracts.control import TopologyName
from hmas.contracts.rehearsal import PoolFacts
from hmas.mesh.client import open_bus
from hmas.mesh.command import run_command
from hmas.mesh.past_files import Past, read_past, write_mooncake, write_own
from hmas.mesh.state import DEFAULT_DATA_DIR, read_state
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
from hmas.sim.past_replay import CHUNK_TOKENS
from hmas.sim.rehearse import RehearsalQuestion, named_profile

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
    slo: Annotated[
        list[str] | None,
        typer.Option(help="other SLOs in ms of a tenant or task type, such as chat:ttft=800,tpot=60; may be repeated"),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(help="the engines' profile: a name, or a file of `hmas calibrate`; default: fitted to their pace"),
    ] = "",
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="the engines' --max-num-batched-tokens, which they do not tell; default: the profile's, "
            f"or {CHUNK_TOKENS} without one",
        ),
    ] = None,
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
    """Replay a pool's last requests in simulation: as they were served, and under another topology, number of engines
    or SLOs. Ends with 3 where the simulation is not to be believed."""

    async def main() -> int:
        window_s = seconds(last)
        if file is not None:
            past = read_past(file)
        else:
            past = await listen(open_bus(nats_url, data_dir), pool or read_state(data_dir).pool, window_s)
        if export is not None:
            return _export(past, export, mooncake=mooncake)
        emulated = read_state(data_dir).profile if file is None and nats_url is None and not profile else ""
        chosen = named_profile(profile or emulated)
        facts = past.facts
        if facts is None:
            if chosen is None or engines is None:
                raise ValueError("it is not known which engines served these requests: name --profile and --engines")
            limits = chosen.limits
            facts = PoolFacts(
                engines=engine_count(engines, 0), workers=1, max_num_seqs=limits.max_num_seqs,
                max_model_len=limits.max_model_len, kv_capacity_tokens=limits.num_gpu_blocks * limits.block_size,
                block_size=limits.block_size,
            )  # fmt: skip
        question = RehearsalQuestion(
            window_s=window_s,
            facts=facts,
            in_force=past.in_force,
            candidates=candidates_of(past, topology or (), objective, engines, slo or (), facts.engines),
            seeds=tuple(range(1, seeds + 1)),
            profile=chosen,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        found = await asked(question, past)
        if as_json:
            console.print_json(data=data_of(past, found))
        else:
            console.print(render(past, found))
        return ABSTAINS if found.abstains else 0

    run_command(main)


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

"""What `hmas up` and `hmas compare` are told of their engines: the options that both have, and those of one."""

from pathlib import Path
from typing import Annotated

import typer

EngineUrls = Annotated[
    list[str] | None,
    typer.Option(
        help="URL of a vLLM or SGLang server; repeat the option for several. Or one source of engines that come "
        "and go: dns+http://HOST:PORT, file+PATH"
    ),
]
PrefillEngines = Annotated[
    list[str] | None,
    typer.Option(
        help="URL of a vLLM with NIXL that computes prompts for those of --decode, or `emulated` to start one; repeat "
        "the option for several. HMAS_SPLIT says when two engines serve a request (auto)"
    ),
]
DecodeEngines = Annotated[
    list[str] | None,
    typer.Option(help="URL of one that reads their KV and answers, or `emulated`; repeat the option for several"),
]
ServedModel = Annotated[
    str, typer.Option(help="model that the engines serve; default: the first that each engine lists")
]
Aliases = Annotated[
    list[str] | None,
    typer.Option(help="another name for the first engine's model, or NAME=MODEL; repeat the option for several"),
]
ApiKeyFile = Annotated[Path | None, typer.Option(help="file with the engines' API key")]
MaxNumSeqs = Annotated[int | None, typer.Option(min=1, help="the engines' --max-num-seqs, which vLLM does not report")]
Hardware = Annotated[
    str, typer.Option(help="the engines' card and how many, e.g. H100x2, by which the cost model knows them")
]
EmulatedProfile = Annotated[
    str, typer.Option(help="engine profile of the emulated engines: a name, or a file of `hmas calibrate`")
]
EmulatedCount = Annotated[
    int, typer.Option(min=1, max=64, help="number of emulated engines to start if no --engine is given")
]
PlannedEnginesFile = Annotated[
    Path | None,
    typer.Option("--plan", help="start the emulated engines of this plan (`hmas plan search`), and follow it"),
]
PlanTypes = Annotated[Path | None, typer.Option("--catalogue", help="instance types of --plan; default: what ships")]
PlanCards = Annotated[
    list[str] | None,
    typer.Option("--gpus", help="cards that --plan may use, such as 16xh100; default: those it takes"),
]
WorkerCount = Annotated[
    int,
    typer.Option(
        min=0, max=64, help="number of workers that share the engines; 0: one per engine, or two for a source"
    ),
]

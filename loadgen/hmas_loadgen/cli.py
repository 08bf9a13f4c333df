"""`hmas load …`, also `python -m hmas_loadgen`. Heavy imports wait until a command needs them."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hmas_loadgen.traces_cli import app as traces_app

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Open-loop load for any OpenAI-compatible endpoint.",
)
app.add_typer(traces_app, name="traces", help="Fetch, list and describe traces.")
console = Console()
errors = Console(stderr=True)

TRACE_HELP = "trace file, or azure-like, poisson, gamma, stress, burst, drift, shift, semantic"
TraceName = Annotated[str, typer.Argument(help=TRACE_HELP)]
Url = Annotated[list[str] | None, typer.Option(help="base URL without /v1; repeat it for least-outstanding balancing")]
ModelName = Annotated[str, typer.Option(help="model; asked of the first target if not given")]
ApiName = Annotated[str, typer.Option(help="chat or completions")]
ReplayField = Annotated[
    bool,
    typer.Option(
        "--replay-field/--direct",
        help="output lengths through the mesh's opaque hmas_replay field, or straight at an engine by ignore_eos",
    ),
]
Natural = Annotated[bool, typer.Option(help="let the model end where it ends")]
SendSlo = Annotated[bool, typer.Option(help="state each request's SLO in headers")]
ApiKey = Annotated[str | None, typer.Option(envvar="HMAS_API_KEY", help="API key of tenants without their own")]
Tenants = Annotated[Path | None, typer.Option(help="YAML: name: {share: 1, key: ...}; spreads requests over tenants")]
Header = Annotated[list[str] | None, typer.Option(help="NAME=VALUE for every request")]
Body = Annotated[list[str] | None, typer.Option(help="FIELD=JSON for every request body")]
Start = Annotated[float, typer.Option(help="take the trace from this second on")]
Duration = Annotated[float | None, typer.Option(help="seconds of the trace to take")]
Rate = Annotated[list[float] | None, typer.Option(help="mean requests per second; repeat it for several runs")]
Factor = Annotated[float | None, typer.Option(help="multiply the trace's own rate instead")]
ByTime = Annotated[bool, typer.Option(help="reach the rate by time compression, not by thinning and superposition")]
Speed = Annotated[float, typer.Option(help="play the window this many times as fast")]
Seed = Annotated[list[int] | None, typer.Option(help="seed; repeat it for several runs")]
Warmup = Annotated[float, typer.Option(help="seconds at the start that are sent but not scored")]
Timeout = Annotated[float, typer.Option(help="seconds until a request is given up")]
Drain = Annotated[float, typer.Option(help="seconds after the window until unfinished requests are cut off")]
MaxTokens = Annotated[int | None, typer.Option(help="the one max_tokens of all requests")]
Processes = Annotated[int, typer.Option(min=1, max=64, help="sender processes")]
Prompts = Annotated[Path | None, typer.Option(help="folder of labelled prompts; default: $HMAS_DATA/prompts")]
Out = Annotated[Path | None, typer.Option(help="folder for results; default: out/load/NAME")]
Resume = Annotated[bool, typer.Option(help="go on with an unfinished run or series in --out")]


def data_folder() -> Path | None:
    """`$HMAS_DATA`: traces and labelled prompts, if the user has them."""
    value = os.environ.get("HMAS_DATA")
    return Path(value) if value else None


def fail(error: Exception) -> typer.Exit:
    """What a user can mend, in one line."""
    errors.print(f"[red]hmas load:[/red] {error}", highlight=False, soft_wrap=True)
    return typer.Exit(2)


@app.command()
def run(
    trace: TraceName = "azure-like",
    url: Url = None,
    model: ModelName = "",
    api: ApiName = "chat",
    replay_field: ReplayField = False,
    natural: Natural = False,
    send_slo: SendSlo = False,
    api_key: ApiKey = None,
    tenants: Tenants = None,
    header: Header = None,
    body: Body = None,
    start: Start = 0.0,
    duration: Duration = None,
    rate: Rate = None,
    factor: Factor = None,
    by_time: ByTime = False,
    speed: Speed = 1.0,
    seed: Seed = None,
    warmup: Warmup = 0.0,
    timeout: Timeout = 600.0,
    drain: Drain = 60.0,
    max_tokens: MaxTokens = None,
    processes: Processes = 1,
    prompts: Prompts = None,
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Replay a trace or a made workload open loop, and score it."""
    options = dict(locals())
    raise typer.Exit(_run(options))


@app.command()
def replay(
    trace: TraceName,
    url: Url = None,
    api_key: ApiKey = None,
    duration: Duration = None,
    rate: Rate = None,
    speed: Speed = 1.0,
    seed: Seed = None,
    out: Out = None,
) -> None:
    """Short form of `run` against the mesh: replay field on, default address, everything else by default."""
    options = dict(locals()) | {"url": url or ["http://127.0.0.1:8000"], "replay_field": True}
    raise typer.Exit(_run(options))


def _run(options: dict[str, Any]) -> int:
    """Builds the plans, runs them, prints the table. 0: all valid; 1: some run is invalid; 130: stopped."""
    import uvloop

    from hmas_loadgen.compare import compare_table, error_table
    from hmas_loadgen.execute import PlannedRuns, execute
    from hmas_loadgen.options import RunOptions, build_plans, load_prompts

    try:
        chosen = RunOptions(**options)
        plans = build_plans(chosen)
        corpus = load_prompts(chosen.prompts, data_folder())
        results, stopped = uvloop.run(execute(PlannedRuns(plans, corpus, chosen.resume), console))
    except (ValueError, OSError) as error:
        raise fail(error) from None
    console.print(compare_table(results))
    for result in results:
        table = error_table(result)
        if table is not None:
            console.print(table)
    console.print(f"results in {', '.join(str(folder) for _, folder in plans[: len(results)])}", highlight=False)
    if stopped:
        console.print("stopped; the same command with --resume goes on")
        return 130
    return 0 if all(result.valid for result in results) else 1


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs")],
    out: Annotated[Path, typer.Option(help="where the page with overlaid plots goes")] = Path("out/load/compare.html"),
) -> None:
    """Put runs side by side: a table here, overlaid plots in one self-contained page."""
    from hmas_loadgen import report
    from hmas_loadgen.compare import compare_table
    from hmas_loadgen.output import load_run

    try:
        results = [load_run(path) for path in runs]
        out.parent.mkdir(parents=True, exist_ok=True)
        report.write(out, results, "Comparison")
    except (ValueError, OSError) as error:
        raise fail(error) from None
    console.print(compare_table(results))
    console.print(f"plots in {out}", highlight=False)


@app.command()
def annotate(
    trace: TraceName,
    out: Annotated[Path, typer.Argument(help="Parquet file to write")],
    start: Start = 0.0,
    duration: Duration = None,
    rate: Annotated[float | None, typer.Option(help="mean requests per second")] = None,
    seed: Annotated[int, typer.Option(help="seed")] = 0,
) -> None:
    """Write a trace with task types, importance and SLOs (H-MAS App. E.5) as Parquet."""
    from hmas_loadgen.source import Source
    from hmas_loadgen.traces.native import write_parquet

    try:
        annotated = Source(trace=trace, start_s=start, duration_s=duration, rate_rps=rate, seed=seed).load()
        write_parquet(annotated, out)
    except (ValueError, OSError) as error:
        raise fail(error) from None
    console.print(f"{len(annotated.rows)} requests in {out} ({annotated.note})", highlight=False)

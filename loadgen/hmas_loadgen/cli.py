"""The commands of `hmas load`, also started as `python -m hmas_loadgen`. Each command imports its heavy modules itself,
so that `--help` is quick."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hmas.event_loop import run_loop
from hmas_loadgen.traces_cli import app as traces_app

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Load for any OpenAI-compatible endpoint, open loop or as jobs.",
)
app.add_typer(traces_app, name="traces", help="Fetch, list and describe traces.")
console = Console()
errors = Console(stderr=True)

TRACE_HELP = (
    "a trace file, or the name of a made workload: azure-like, poisson, gamma, stress, burst, drift, shift, semantic"
)
TraceName = Annotated[str, typer.Argument(help=TRACE_HELP)]
Url = Annotated[
    list[str] | None,
    typer.Option(help="base URL of the target, without /v1; repeat it to balance over several by outstanding requests"),
]
ModelName = Annotated[str, typer.Option(help="model name; default: the first model that the first target lists")]
ApiName = Annotated[str, typer.Option(help="API to call: chat or completions")]
ReplayField = Annotated[
    bool,
    typer.Option(
        "--replay-field/--direct",
        help="force the trace's output lengths by the mesh's field hmas_replay, or at an engine by ignore_eos",
    ),
]
Natural = Annotated[bool, typer.Option(help="do not force output lengths: let the model end its answers itself")]
SendSlo = Annotated[bool, typer.Option(help="send each request's SLO in headers")]
ApiKey = Annotated[
    str | None, typer.Option(envvar="HMAS_API_KEY", help="API key of all requests whose tenant has none of its own")
]
Tenants = Annotated[
    Path | None,
    typer.Option(help="YAML file of tenants, NAME: {share: 1, key: ...}, over which requests are spread by share"),
]
Header = Annotated[list[str] | None, typer.Option(help="HTTP header of every request, as NAME=VALUE; may be repeated")]
Body = Annotated[list[str] | None, typer.Option(help="field of every request body, as FIELD=JSON; may be repeated")]
Start = Annotated[float, typer.Option(help="second of the trace at which the replay starts")]
Duration = Annotated[
    float | None, typer.Option(help="seconds of the trace to replay; default: to its end, 60 of a made workload")
]
Rate = Annotated[
    list[float] | None,
    typer.Option(help="scale the trace to this mean rate, requests per second; repeat it for several runs"),
]
Factor = Annotated[float | None, typer.Option(help="multiply the rate by this factor")]
ByTime = Annotated[
    bool, typer.Option(help="reach --rate by compressing time, not by thinning and superposing requests")
]
Speed = Annotated[float, typer.Option(help="replay the chosen part of the trace this many times as fast")]
Seed = Annotated[list[int] | None, typer.Option(help="seed of all random choices; repeat it for several runs")]
Warmup = Annotated[float, typer.Option(help="seconds at the start that are sent but not scored")]
Timeout = Annotated[float, typer.Option(help="seconds after which an unfinished request is given up")]
Drain = Annotated[
    float, typer.Option(help="seconds after the end of the schedule at which unfinished requests are cut off")
]
MaxTokens = Annotated[
    int | None, typer.Option(help="max_tokens of every request; default: the longest output, rounded up")
]
Processes = Annotated[int, typer.Option(min=1, max=64, help="number of sender processes")]
Prompts = Annotated[
    Path | None, typer.Option(help="folder of prompts labelled by task type; default: $HMAS_DATA/prompts")
]
Out = Annotated[Path | None, typer.Option(help="folder for the results; default: out/load/NAME")]
Workflow = Annotated[
    str,
    typer.Option(
        help="send jobs in a closed loop in place of a trace: typed (the project's own), or a file or folder of "
        "recorded workflows; --rate is then in jobs per second"
    ),
]
JobBudget = Annotated[
    float | None,
    typer.Option(help="seconds that a job is allowed; default: it is on time if each of its calls is"),
]
NameJobs = Annotated[bool, typer.Option(help="name each call's job in the header x-hmas-job")]
WorthFile = Annotated[
    Path | None,
    typer.Option("--worth", help="the mesh's tenants file: its weights of tenants and task types count in the utility"),
]
Resume = Annotated[bool, typer.Option(help="continue the unfinished run or series in --out")]


def data_folder() -> Path | None:
    """Returns the folder of traces and labelled prompts that `$HMAS_DATA` names, or None if the variable is not set."""
    value = os.environ.get("HMAS_DATA")
    return Path(value) if value else None


def fail(error: Exception) -> typer.Exit:
    """Prints an error that the user can correct as one line, and returns an exit with status 2 for the caller to
    raise."""
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
    workflow: Workflow = "",
    job_budget: JobBudget = None,
    name_jobs: NameJobs = False,
    worth: WorthFile = None,
) -> None:
    """Replay a trace or a made workload open loop, or jobs whose calls follow one another, and score the answers."""
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
    """Replay a trace against the mesh: `run` with --replay-field and --url http://127.0.0.1:8000 by default."""
    options = dict(locals()) | {"url": url or ["http://127.0.0.1:8000"], "replay_field": True}
    raise typer.Exit(_run(options))


def _run(options: dict[str, Any]) -> int:
    """Builds the plans, runs them and prints the table. Returns the exit status: 0 if all runs are valid, 1 if one is
    invalid, 130 if the user stopped the series."""
    from hmas_loadgen.compare import compare_table, error_table, jobs_table
    from hmas_loadgen.execute import PlannedRuns, execute
    from hmas_loadgen.options import RunOptions, build_plans, load_prompts

    try:
        chosen = RunOptions(**options)
        plans = build_plans(chosen)
        corpus = load_prompts(chosen.prompts, data_folder())
        results, stopped = run_loop(execute(PlannedRuns(plans, corpus, chosen.resume), console))
    except (ValueError, OSError) as error:
        raise fail(error) from None
    console.print(compare_table(results))
    for result in results:
        for table in (jobs_table(result), error_table(result)):
            if table is not None:
                console.print(table)
    console.print(f"results are in {', '.join(str(folder) for _, folder in plans[: len(results)])}", highlight=False)
    if stopped:
        console.print("stopped; to continue, give the same command with --resume")
        return 130
    return 0 if all(result.valid for result in results) else 1


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="folders of finished runs")],
    out: Annotated[Path, typer.Option(help="file that the page with overlaid plots is written to")] = Path(
        "out/load/compare.html"
    ),
) -> None:
    """Compare runs: print a table, and write overlaid plots as one self-contained page."""
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
    console.print(f"plots are in {out}", highlight=False)


@app.command()
def annotate(
    trace: TraceName,
    out: Annotated[Path, typer.Argument(help="Parquet file to write")],
    start: Start = 0.0,
    duration: Duration = None,
    rate: Annotated[float | None, typer.Option(help="scale the trace to this mean rate, requests per second")] = None,
    seed: Annotated[int, typer.Option(help="seed of all random choices")] = 0,
) -> None:
    """Write a trace with task types, importance and SLOs (H-MAS App. E.5) as Parquet."""
    from hmas_loadgen.source import Source
    from hmas_loadgen.traces.native import write_parquet

    try:
        annotated = Source(trace=trace, start_s=start, duration_s=duration, rate_rps=rate, seed=seed).load()
        write_parquet(annotated, out)
    except (ValueError, OSError) as error:
        raise fail(error) from None
    console.print(f"wrote {len(annotated.rows)} requests to {out} ({annotated.note})", highlight=False)

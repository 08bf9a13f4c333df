"""The `hmas` command line: its sub-commands and their options."""

import sys

from hmas.runtime.priority import give_way

if sys.argv[1:2] == ["console"]:
    give_way()  # before the imports, which are most of what a start costs

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from hmas.contracts.control import TopologyName
from hmas.mesh.client import open_bus
from hmas.mesh.command import errors, refuse, run_command
from hmas.mesh.state import DEFAULT_DATA_DIR, read_state
from hmas.runtime.extras import CannotStart, needs

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="H-MAS: a mesh of scheduling agents in front of vLLM and SGLang.",
)
console = Console() if Console().is_terminal else Console(width=160)  # piped output is not cut to 80 columns
ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}

DataDir = Annotated[
    Path, typer.Option(envvar="HMAS_DATA_DIR", help="folder in which the embedded mesh keeps its state and logs")
]
NatsUrl = Annotated[
    str | None, typer.Option(help="URL of the mesh's NATS server; default: that of the embedded mesh under --data-dir")
]
Pool = Annotated[str | None, typer.Option(help="pool, named after its model; default: the embedded mesh's")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("hmas"))
        raise typer.Exit


@app.callback()
def options(
    show: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def top(
    nats_url: NatsUrl = None,
    once: Annotated[
        float | None, typer.Option(help="listen for this many seconds, print the view once, and end")
    ] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Watch the running mesh: workers, topology, control tuples, and the share of requests that meet their SLOs."""
    from hmas.mesh.top.shell import run_top

    async def main() -> int:
        await run_top(open_bus(nats_url, data_dir), console, once_after_s=once)
        return 0

    run_command(main)


@app.command()
def pin(
    topology: Annotated[
        str, typer.Argument(help=f"{', '.join(TopologyName)}, the name of an installed one, or `off` to lift the pin")
    ],
    pool: Pool = None,
    layout: Annotated[
        str | None,
        typer.Option(
            help="pace classes: `mixed`, or bounds on TPOT SLOs in ms with numbers of engines, such as 84:1,111:2; the "
            "last class gets the other engines"
        ),
    ] = None,
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Pin a pool to one topology, and to a layout if one is named; a pin outranks every selector until it is lifted
    with `off`."""
    from hmas.entry_points import known_topology
    from hmas.laws.layout import described_split
    from hmas.operator.pin import parse_layout, pool_observes, set_pin

    async def main() -> int:
        chosen = None if topology == "off" else known_topology(topology)
        name = pool or read_state(data_dir).pool
        split = None if layout is None else parse_layout(layout)
        if chosen is None and split is not None:
            raise ValueError("`off` lifts the pin of topology and layout: leave --layout out")
        await set_pin(open_bus(nats_url, data_dir), name, chosen, split)
        shown = "" if split is None else f", layout {described_split(split)}"
        console.print(f"{name}: pin lifted" if chosen is None else f"{name}: pinned to {chosen}{shown}")
        if await pool_observes(open_bus(nats_url, data_dir), name):
            console.print("the mesh only observes: nothing is in force, and the pin counts once requests are scheduled")
        return 0

    run_command(main)


@app.command()
def why(
    request_id: Annotated[str, typer.Argument(help="X-Request-Id of a recent request")],
    as_json: Annotated[bool, typer.Option("--json", help="print the timeline as JSON")] = False,
    effects: Annotated[bool, typer.Option(help="print what each agent heard of it and did, step by step")] = False,
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Show a recent request's timeline: tags, predictions, waits, topology, engine, outcome."""
    from hmas.operator.why import ask_effects, ask_why, effects_data, render_effects, render_why

    async def main() -> int:
        timeline = await ask_why(open_bus(nats_url, data_dir), request_id)
        if timeline is None:
            errors.print(f"no gateway remembers the request {request_id}: check the id and ask soon after the request")
            return 1
        if effects:
            replies = await ask_effects(open_bus(nats_url, data_dir), timeline["request_id"])
            if as_json:
                console.print_json(data=effects_data(replies))
            else:
                console.print(render_effects(replies))
        elif as_json:
            console.print_json(data=timeline)
        else:
            console.print(render_why(timeline))
        return 0

    run_command(main)


@app.command()
def jobs(
    most: Annotated[
        int, typer.Option(min=1, max=1000, help="maximum number of templates and jobs that are listed")
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="print every job that the gateways know, as JSON")] = False,
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """List the slowest templates of jobs (agents' runs) seen lately, and the jobs that run: their calls and what of
    their prompts was cached."""
    from dataclasses import asdict

    from hmas.operator.jobs import ask_jobs, render_jobs

    async def main() -> int:
        known = await ask_jobs(open_bus(nats_url, data_dir))
        if as_json:
            console.print_json(data=[asdict(job) for job in known])
        else:
            console.print(render_jobs(known, most))
        return 0

    run_command(main)


@app.command()
def doctor(
    port: Annotated[int, typer.Option(help="port that the API will use")] = 8000,
    nats_port: Annotated[
        int | None, typer.Option(help="port that the embedded NATS server will use, if it must be a certain one")
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="URL of an engine to check; repeat the option for several")
    ] = None,
    engine_api_key_file: Annotated[
        Path | None, typer.Option(help="file with the engines' API key", exists=True, dir_okay=False)
    ] = None,
    llm_url: Annotated[str | None, typer.Option(help="OpenAI endpoint of the meta controller's LLM")] = None,
    tenants: Annotated[Path | None, typer.Option(help="tenants file to check")] = None,
    tls_cert: Annotated[Path | None, typer.Option(envvar="HMAS_TLS_CERT_FILE", help="certificate to check")] = None,
    tls_key: Annotated[Path | None, typer.Option(envvar="HMAS_TLS_KEY_FILE", help="its private key")] = None,
    console_port: Annotated[int, typer.Option(help="port that the console will use")] = 8090,
    data: Annotated[Path | None, typer.Option(envvar="HMAS_DATA", help="folder with traces/; default: ./data")] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Check what each way to use H-MAS needs: a mesh on this machine, your engines, the console, TLS, your own load,
    containers, Kubernetes; and say what to do about each fault."""
    from hmas.gateway.tenants.store import load_tenants
    from hmas.mesh import doctor as d
    from hmas.mesh import doctor_checks

    mesh = d.check_mesh(data_dir)
    runs = len(mesh) > 1
    here = [
        d.check_python(),
        d.check_nats_binary(),
        d.check_extra("perception", "onnxruntime", "set HMAS_PERCEPTION_BACKEND=rules"),
        d.check_extra("prediction", "numpy", "set HMAS_COST_MODEL=linear"),
        d.check_data_dir(data_dir),
        d.check_port("API", port, mesh_runs=runs),
        *([d.check_port("NATS", nats_port, mesh_runs=runs)] if nats_port else []),
        *mesh,
    ]
    if llm_url:
        advice = "start the LLM server or correct its URL; without an LLM the rules choose the topology"
        here.append(d.check_http("LLM of the meta controller", llm_url, "/models", advice))
    if tenants is not None:
        here.append(d.check_tenants(tenants, load_tenants))
    key = engine_api_key_file.read_text().strip() if engine_api_key_file else ""
    found = {
        "this machine: hmas up": here,
        "your engines: hmas up --engine": [
            *doctor_checks.your_engines(engine or [], key),
            d.check_extra("kv-events", "zmq", "leave HMAS_KV_EVENTS unset"),
        ],
        "the console": doctor_checks.console_check(console_port, data_dir),
        "TLS to clients": doctor_checks.tls_check(tls_cert, tls_key),
        "your load: hmas compare, calibrate, whatif": doctor_checks.load_check(data),
        "containers: docker compose": doctor_checks.containers(),
        "Kubernetes: helm": doctor_checks.kubernetes(),
    }
    console.print(d.findings_table(found))
    raise typer.Exit(1 if any(f.verdict == "fail" for door in found.values() for f in door) else 0)


@dataclass(frozen=True, slots=True)
class Part:
    """The commands that another module defines, and the extra of the installation that they need. `reads_words`: the
    command reads its own words, `--help` among them."""

    module: str
    attribute: str
    extra: str
    help: str = ""
    reads_words: bool = False


PARTS = {
    "up": Part("hmas.mesh.up_cli", "up", "mesh"),
    "engine": Part("hmas.mesh.engine_cli", "engine", "all", reads_words=True),
    "config": Part("hmas.mesh.config.cli", "app", "mesh", "Show and check a configuration file of `hmas up`."),
    "console": Part("hmas.mesh.console_cli", "console", "all"),
    "secrets": Part("hmas.mesh.secrets", "secrets", "all"),
    "certificates": Part("hmas.mesh.certificates", "certificates", "certificates"),
    "keys": Part("hmas.gateway.tenants.keys_cli", "app", "all", "Make, list, rotate and revoke API keys."),
    "usage": Part("hmas.gateway.usage.cli", "app", "all", "Show and export what tenants and API keys have used."),
    "load": Part("hmas_loadgen.cli", "app", "load", "Load generator: replay traces against any OpenAI endpoint."),
    "traces": Part("hmas_loadgen.traces_cli", "app", "load", "Fetch, list and describe traces."),
    "whatif": Part("hmas.mesh.whatif_cli", "whatif", "sim"),
    "report": Part("hmas.mesh.gain_report_cli", "scheduling_report", "load"),
    "replay": Part("hmas.mesh.compare.cli", "replay", "load"),
    "compare": Part("hmas.mesh.compare.cli", "compare", "load"),
    "calibrate": Part("hmas.mesh.calibrate.cli", "calibrate", "load"),
    "profile": Part("hmas.mesh.profiling.cli", "app", "load", "Fit what engines cost on 1 to 8 cards, for plans."),
    "plan": Part("hmas.mesh.planning.cli", "app", "sim", "Which engines your cards should run, and how to get there."),
    # The laboratory's, which the wheel does not hold.
    "label": Part("hmas_lab.label", "label", "load"),
    "sim": Part("hmas_lab.sim.cli", "app", "sim", "The mesh in virtual time: baselines, limits, experiments."),
    "train": Part("hmas_lab.cognition_cli", "train", "perception", "Train perception or prediction."),
    "eval": Part("hmas_lab.cognition_cli", "evaluate", "perception", "Evaluate perception or prediction."),
}


def mount(name: str, part: Part) -> None:
    """Adds the commands of a part; if its package or extra is not installed, adds a command that says so instead."""
    try:
        if find_spec(part.module.partition(".")[0]) is None:
            raise CannotStart(
                f"hmas {name} needs a clone of the repository: `make run` there installs it as .venv/bin/hmas {name}, "
                "and the package alone does not hold it"
            )
        with needs(part.extra):
            commands = getattr(import_module(part.module), part.attribute)
    except CannotStart as missing:
        app.command(
            name, help=escape(f"Not installed: {missing}"), add_help_option=False, context_settings=ANY_ARGUMENTS
        )(_refusal(missing))
        return
    if isinstance(commands, typer.Typer):
        app.add_typer(commands, name=name, help=part.help)
    elif part.reads_words:
        app.command(name, add_help_option=False, context_settings=ANY_ARGUMENTS)(commands)
    else:
        app.command(name)(commands)


def _refusal(missing: CannotStart) -> Callable[[], None]:
    def refusal() -> None:
        raise missing

    return refusal


def main() -> None:
    """Runs the `hmas` command, with the commands that other packages define: importing them takes most of a second, so
    only what is asked for is imported. Help and a misspelt command need all."""
    word = next(iter(sys.argv[1:]), "")
    own = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    asked = PARTS.get(word)
    if asked is not None:
        mount(word, asked)
    elif word not in own and word != "--version":
        for name, part in PARTS.items():
            mount(name, part)
    try:
        with needs(asked.extra if asked is not None else "all"):
            app()
    except CannotStart as error:
        sys.exit(refuse(error).exit_code)


if __name__ == "__main__":
    main()

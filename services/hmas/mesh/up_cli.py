"""The command `hmas up` and its flags, whose values may stand in a configuration file."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hmas.mesh.command import MENDABLE, refuse, run_command
from hmas.mesh.engine_options import (
    Aliases,
    ApiKeyFile,
    DecodeEngines,
    EmulatedCount,
    EmulatedProfile,
    EngineUrls,
    Hardware,
    MaxNumSeqs,
    PlanCards,
    PlannedEnginesFile,
    PlanTypes,
    PrefillEngines,
    ServedModel,
    WorkerCount,
)
from hmas.mesh.options import MeshOptions
from hmas.mesh.state import DEFAULT_DATA_DIR

if TYPE_CHECKING:
    from hmas.mesh.config.mesh_file import MeshFile

FILE_IN_CONTEXT = "hmas.config"  # the key of the MeshFile in a context's `meta`
console = Console() if Console().is_terminal else Console(width=160)  # piped output is not cut to 80 columns


def _take_over(context: typer.Context, path: Path | None) -> Path | None:
    """Reads the configuration file before the other flags, whose defaults it has."""
    if path is None or context.resilient_parsing:
        return path
    from hmas.mesh.config.flags import flags_of
    from hmas.mesh.config.mesh_file import read_mesh_file
    from hmas.mesh.config.values_in_force import check_in_force, defaults_of_flags

    try:
        file = read_mesh_file(path, flags_of(up))
        check_in_force(file, os.environ)
    except MENDABLE as error:
        raise refuse(error) from None
    context.meta[FILE_IN_CONTEXT] = file
    context.default_map = {**(context.default_map or {}), **defaults_of_flags(file, os.environ)}
    return path


def _settings(file: "MeshFile | None") -> dict[str, dict[str, str]]:
    if file is None:
        return {}
    from hmas.mesh.config.values_in_force import variables

    return variables(file, os.environ)


ConfigurationFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,
        callback=_take_over,
        help="YAML file with flags and settings (`hmas config schema`); variables and flags outrank it",
    ),
]
ApiHost = Annotated[str, typer.Option(envvar="HMAS_HOST", help="address on which the API listens")]
ApiPort = Annotated[int, typer.Option(envvar="HMAS_PORT", help="port of the API, refused if taken; 0: any free port")]
TenantsFile = Annotated[
    Path | None,
    typer.Option(help="YAML file of tenants and API keys; without it every client is the tenant `default`"),
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option(envvar="HMAS_TLS_CERT_FILE", help="PEM file of the API's certificate; a new one is taken over"),
]
TlsKey = Annotated[
    Path | None, typer.Option(envvar="HMAS_TLS_KEY_FILE", help="PEM file of that certificate's private key")
]
ExternalNats = Annotated[
    str | None, typer.Option(help="URL of an external NATS server with JetStream, instead of an embedded one")
]
NatsPort = Annotated[int, typer.Option(help="port of the embedded NATS server, refused if taken; 0: any")]
LlmUrl = Annotated[str | None, typer.Option(help="OpenAI endpoint of the meta controller's LLM")]
LlmModel = Annotated[str, typer.Option(help="model of the meta controller's LLM")]
LlmKeyFile = Annotated[Path | None, typer.Option(help="file with the API key of that LLM")]
ConsolePort = Annotated[
    int, typer.Option(help="port of the console, on the loopback; 0, or one that is taken: any free port")
]
ShowsConsole = Annotated[bool, typer.Option("--console/--no-console", help="start the console beside the mesh")]
Replays = Annotated[
    bool, typer.Option(help="let the load generator fix output lengths (field hmas_replay); for benchmarks only")
]
LogLevel = Annotated[str, typer.Option(help="lowest level that is logged: debug, info, warning or error")]
DataFolder = Annotated[
    Path, typer.Option(envvar="HMAS_DATA_DIR", help="folder in which the embedded mesh keeps its state and logs")
]


def up(
    context: typer.Context,
    config: ConfigurationFile = None,
    host: ApiHost = "127.0.0.1",
    port: ApiPort = 8000,
    engine: EngineUrls = None,
    prefill: PrefillEngines = None,
    decode: DecodeEngines = None,
    model: ServedModel = "",
    alias: Aliases = None,
    engine_api_key_file: ApiKeyFile = None,
    max_num_seqs: MaxNumSeqs = None,
    hardware: Hardware = "",
    profile: EmulatedProfile = "tiny-emulated",
    emulated: EmulatedCount = 2,
    plan: PlannedEnginesFile = None,
    catalogue: PlanTypes = None,
    gpus: PlanCards = None,
    workers: WorkerCount = 0,
    tenants: TenantsFile = None,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    nats_url: ExternalNats = None,
    nats_port: NatsPort = 0,
    llm_url: LlmUrl = None,
    llm_model: LlmModel = "",
    llm_api_key_file: LlmKeyFile = None,
    console_port: ConsolePort = 8090,
    shows: ShowsConsole = True,
    replay: Replays = False,
    log_level: LogLevel = "info",
    data_dir: DataFolder = DEFAULT_DATA_DIR,
) -> None:
    """Start the whole mesh on this machine and serve until Ctrl-C."""
    options = MeshOptions(
        host=host, port=port, model=model, aliases=tuple(alias or ()), engine_urls=tuple(engine or ()),
        engine_api_key_file=engine_api_key_file, max_num_seqs=max_num_seqs, hardware=hardware, profile=profile,
        emulated=emulated, workers=workers, nats_url=nats_url, nats_port=nats_port, tenants=tenants, llm_url=llm_url,
        llm_model=llm_model, llm_api_key_file=llm_api_key_file, data_dir=data_dir, log_level=log_level, replay=replay,
        tls_cert=tls_cert, tls_key=tls_key, console_port=console_port if shows else None,
        settings=_settings(context.meta.get(FILE_IN_CONTEXT)),
    )  # fmt: skip
    from hmas.mesh.paired_engines import with_roles
    from hmas.mesh.planned_engines import with_plan
    from hmas.mesh.up import serve

    run_command(lambda: serve(with_plan(with_roles(options, prefill, decode), plan, catalogue, gpus or ()), console))

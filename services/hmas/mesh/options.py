"""The options of `hmas up`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hmas.mesh.planned_pools import PlannedPools
from hmas.mesh.state import DEFAULT_DATA_DIR
from hmas.worker.discovery.source import EngineSource, source_of


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """The options of an embedded mesh. Without `engine_urls`, `emulated` emulated engines are started.

    `replay` accepts the load generator's `hmas_replay` field, which fixes output lengths; a mesh that serves real
    clients must leave it off. `models` has the models of those engines that serve another one than `model`, by URL;
    of those in `unnamed` nobody knows yet. An alias is a name of `model`, or NAME=MODEL. `engine_urls` may have one
    source of engines in the place of URLs, which `workers` workers share (0: two). With a plan (`planned`) there is one
    for each of its pools.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model: str = ""
    models: dict[str, str] = field(default_factory=dict)
    unnamed: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    engine_urls: tuple[str, ...] = ()
    roles: dict[str, str] = field(
        default_factory=dict
    )  # prefill or decode, of engines in `engine_urls` that share work
    emulated_roles: tuple[str, ...] = ()  # of the emulated engines, in their order
    engine_api_key_file: Path | None = None
    max_num_seqs: int | None = None  # of the engines in `engine_urls`; vLLM does not report it
    hardware: str = ""
    profile: str = "tiny-emulated"
    emulated: int = 2
    workers: int = 0  # 0: one per engine
    nats_url: str | None = None  # of an external server; None: an embedded one is started
    nats_port: int = 0  # of the embedded server; 0: any free port, so that two meshes do not share a server
    tenants: Path | None = None
    llm_url: str | None = None
    llm_model: str = ""
    llm_api_key_file: Path | None = None
    data_dir: Path = DEFAULT_DATA_DIR
    log_level: str = "info"
    replay: bool = False
    tls_cert: Path | None = None  # of the API, with `tls_key`; None: no TLS
    tls_key: Path | None = None
    console_port: int | None = None  # None: no console; 0: any free port
    planned: PlannedPools | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # variables by service, of a file
    extra_env: dict[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> str:
        return self.model or "emulated"

    @property
    def sources(self) -> tuple[EngineSource, ...]:
        """The sources of engines that are given in the place of URLs: one, or one for each pool of a plan. Raises
        ValueError."""
        found = tuple(source for url in self.engine_urls if (source := source_of(url)) is not None)
        if found and len(self.engine_urls) > 1 and self.planned is None:
            raise ValueError("a source of engines stands alone: give one --engine, or a file+ that lists all")
        return found

    @property
    def engine_api_key(self) -> str:
        """The API key that the engines ask for, "" without one. Raises OSError."""
        return self.engine_api_key_file.read_text().strip() if self.engine_api_key_file else ""

    def setting(self, service: str, variable: str) -> str | None:
        """Returns a setting of a service as the environment gives it, or else the configuration file."""
        return os.environ.get(variable, self.settings.get(service, {}).get(variable))

    def pool_of(self, engine_url: str) -> str:
        return self.models.get(engine_url, self.pool)

    def aliases_of(self, pool: str) -> tuple[str, ...]:
        pairs = (alias.partition("=") for alias in self.aliases)
        return tuple(name for name, _, model in pairs if (model or self.pool) == pool)

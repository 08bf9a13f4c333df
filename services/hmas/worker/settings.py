"""The settings of a worker, read once at its start."""

import json
import socket
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator
from pydantic_settings import NoDecode

from hmas import entry_points
from hmas.contracts.cadences import LIVE
from hmas.entry_points import loaded
from hmas.runtime.security import on_loopback
from hmas.runtime.settings import MODE_FIELD, Mode, RuntimeSettings
from hmas.worker.adapters.engine_facts import EngineFacts
from hmas.worker.adapters.kv_events_config import KvEventsConfig
from hmas.worker.adapters.openai_http import OpenAiHttpConfig, Priority, follower
from hmas.worker.agent.config import SplitConfig, WorkerConfig
from hmas.worker.agent.order.topologies import TOPOLOGIES
from hmas.worker.discovery.source import SOURCES, DnsSource, EngineSource, FileSource, KubernetesSource, source_of
from hmas.worker.engine_fields import (
    CacheTokens,
    EngineRole,
    Kind,
    KvAddress,
    KvTransfer,
    Line,
    Port,
    Sequences,
    Tokens,
    Url,
)

KV_EVENTS = r"^(tcp://[^:/*]+:[0-9]+)?$"


class EngineSettings(BaseModel):
    """The settings of one engine: an element of HMAS_ENGINES. Facts that are left out are asked of the engine.

    `advertise_url` is the address that gateways use, empty if they use `url`. The key in `admin_key_file` is sent to
    the engine's admin paths only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[Url, Field(min_length=1)]
    advertise_url: Url = ""
    name: Line = ""
    kind: Kind = "auto"
    hardware: Line = ""
    model: Line = ""
    max_num_seqs: Sequences | None = None
    max_model_len: Tokens | None = None
    kv_capacity_tokens: CacheTokens | None = None
    priority: Priority = "auto"
    control_block: Path | None = None
    kv_events: Annotated[KvAddress, Field(pattern=KV_EVENTS)] = ""
    kv_events_replay: Annotated[KvAddress, Field(pattern=KV_EVENTS)] = ""
    kv_transfer: KvTransfer = ""
    role: EngineRole = ""
    bootstrap_port: Port | None = None
    api_key_file: Path | None = None
    admin_key_file: Path | None = None

    @property
    def endpoint(self) -> str:
        return self.advertise_url or self.url

    @property
    def label(self) -> str:
        return self.name or self.url.partition("://")[2].rstrip("/")


def _form(engines: Any) -> str:
    """Returns which form HMAS_ENGINES has, so that an error is about this form alone."""
    sources = {DnsSource: "dns", FileSource: "file", KubernetesSource: "kubernetes"}
    return sources.get(type(engines), "list")


GivenEngines = Annotated[
    Annotated[tuple[EngineSettings, ...], Tag("list")]
    | Annotated[DnsSource, Tag("dns")]
    | Annotated[FileSource, Tag("file")]
    | Annotated[KubernetesSource, Tag("kubernetes")],
    Discriminator(_form),
]


class WorkerSettings(RuntimeSettings):
    """The settings of a worker, which serves one model with one or more engines."""

    pool: str = Field(description="Name of the model that this worker's engines serve")
    aliases: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Other model names by which clients may ask for the pool's model, separated by commas"
    )
    topologies: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Topologies of installed packages that this worker loads, so that a decision may name them, "
        "separated by commas. A package that is installed and not named here is not imported",
    )
    engines: Annotated[GivenEngines, NoDecode] = Field(
        description="Engine URLs separated by commas, or a JSON list of objects (url, name, kind, hardware, "
        "model, max_num_seqs, max_model_len, kv_capacity_tokens, priority, control_block, kv_events, kv_events_replay, "
        "kv_transfer, role, bootstrap_port, api_key_file, admin_key_file, advertise_url); or one source of engines "
        f"that come and go: {SOURCES}"
    )
    discovery_period_s: float = Field(
        2.0, gt=0, description="Seconds between two reads of a DNS name or of a file of engines"
    )
    leave_grace_s: float = Field(
        60.0, ge=0, description="Seconds that requests may still take on an engine that a source names no more"
    )
    kubernetes_api: str = Field(
        "",
        pattern=r"^(https?://.+)?$",
        description="URL of the Kubernetes API server that tells of engines; if unset, that of the pod's cluster",
    )
    max_num_seqs: int | None = Field(
        None,
        gt=0,
        description="Maximum number of sequences of engines without `max_num_seqs`, as they are configured; vLLM "
        "does not tell it",
    )
    mode: Mode = MODE_FIELD
    hardware: str = Field(
        "unknown",
        description="Card of engines without `hardware`, and how many each has, such as H100x2; the cost model knows "
        "them by it",
    )
    engine_api_key_file: Path | None = Field(
        None, description="File with the API key for engines without an `api_key_file`"
    )
    control_block_dir: Path | None = Field(
        None,
        description="Folder of the control blocks for vLLM's scheduler plug-in: one file per engine, named after it",
    )
    kv_events: str = Field(
        "",
        pattern=KV_EVENTS,
        description="Address at which engines without a `kv_events` of their own publish the events of their KV cache "
        "(vLLM's `--kv-events-config`), such as tcp://{host}:5557 with {host} for the engine's; if unset, they do not. "
        "It needs the extra kv-events",
    )
    kv_events_replay: str = Field(
        "", pattern=KV_EVENTS, description="Address at which they replay these events, such as tcp://{host}:5558"
    )
    kv_transfer: KvTransfer = Field(
        "",
        description="How engines without a `kv_transfer` of their own hand KV to one another: nixl-pull, by vLLM's "
        "NixlConnector; if unset, they do not. A DNS name and Kubernetes do not tell it",
    )
    stream_host: str = Field("127.0.0.1", description="Address on which the worker listens for gateways")
    stream_port: int = Field(
        0, ge=0, le=65535, description="Port on which the worker listens for gateways; 0 picks a free one"
    )
    advertise_host: str = Field(
        "",
        description="Host that gateways connect to; if unset, `stream_host`, or this machine's name if that is 0.0.0.0",
    )
    max_queued: int = Field(100_000, gt=0, description="Maximum number of requests that may wait; more are refused")
    max_queued_tokens: int = Field(
        200_000_000,
        gt=0,
        description="Maximum number of tokens that may wait, prompts and predicted outputs; more are refused",
    )
    static_n_run: int | None = Field(
        None,
        gt=0,
        description="Maximum number of sequences in flight per engine while no control tuple is in force; the "
        "engine's own limit if unset",
    )
    delta_frag: float = Field(0.05, ge=0, lt=1, description="Share of the KV cache that admission keeps free (Eq. 2)")
    prefill_window_s: float | None = Field(
        None,
        ge=0,
        description="Maximum number of seconds of prefill pending on an engine, at its measured pace; more prompts "
        "wait in the worker. If unset, as many as the TPOT of what runs there allows",
    )
    split: str = Field(
        "never",
        pattern=r"^(auto|always|never|beyond:[0-9]{1,9})$",
        description="When an engine with `kv_transfer` computes a prompt for another one: auto, where fewer requests "
        "are expected to be late; never; always, by each engine's `role`; beyond:TOKENS, the same for prompts of which "
        "more tokens are in no cache",
    )
    no_engine_patience_s: float = Field(
        10.0, ge=0, description="Seconds that requests wait while no engine is up, or an engine answers that it is full"
    )
    silence_s: float = Field(
        2.0, ge=0.5, description="Seconds of silence after which a gateway's stream is closed as broken"
    )
    scrape_period_s: float = Field(
        LIVE.scrape_s, gt=0, description="Seconds between two scrapes of an engine's metrics"
    )

    @field_validator("aliases", "topologies", mode="before")
    @classmethod
    def _split_names(cls, value: Any) -> Any:
        return tuple(a.strip() for a in value.split(",") if a.strip()) if isinstance(value, str) else value

    @field_validator("topologies")
    @classmethod
    def _can_be_loaded(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        loaded(entry_points.TOPOLOGIES, TOPOLOGIES, names)
        return names

    @field_validator("engines", mode="before")
    @classmethod
    def _split_engines(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return tuple(json.loads(value))
        source = source_of(value)
        if source is not None:
            return source
        if '"' in value or "{" in value:
            raise ValueError('a list of objects begins with [ and ends with ]: [{"url": "http://10.0.0.1:8000"}]')
        return tuple({"url": url.strip()} for url in value.split(",") if url.strip())

    @model_validator(mode="after")
    def _named_apart(self) -> "WorkerSettings":
        names = [engine.label for engine in self.fixed_engines]
        if not names and self.source is None:
            raise ValueError("no engine is configured: set HMAS_ENGINES=http://HOST:PORT (several: with commas)")
        if len(set(names)) < len(names):
            raise ValueError(f"engines in HMAS_ENGINES must have different names, got {', '.join(names)}: set `name`")
        return self

    @model_validator(mode="after")
    def _kv_events_can_be_followed(self) -> "WorkerSettings":
        if self.kv_events or any(engine.kv_events for engine in self.fixed_engines):
            follower()
        return self

    @property
    def fixed_engines(self) -> tuple[EngineSettings, ...]:
        """The engines that are configured one by one; none if there is a source of them."""
        return self.engines if isinstance(self.engines, tuple) else ()

    @property
    def source(self) -> EngineSource | None:
        return None if isinstance(self.engines, tuple) else self.engines

    def engine_configs(self) -> tuple[OpenAiHttpConfig, ...]:
        """Returns the adapter's configuration of each engine that is configured. Raises OSError if a key file cannot be
        read."""
        return tuple(map(self.engine_config, self.fixed_engines))

    def engine_config(self, engine: EngineSettings, epoch: int = 0) -> OpenAiHttpConfig:
        """Returns the adapter's configuration of an engine, which the worker has by a lease of this epoch (0: without).
        Raises OSError if a key file cannot be read."""
        name = engine.label
        block = self.control_block_dir / name.replace("/", "_") if self.control_block_dir else None
        return OpenAiHttpConfig(
            facts=EngineFacts(
                name=name,
                pool=self.pool,
                endpoint=engine.endpoint,
                dialect=engine.kind,
                hardware=engine.hardware or self.hardware,
                model=engine.model,
                max_num_seqs=engine.max_num_seqs or self.max_num_seqs,
                max_model_len=engine.max_model_len,
                kv_capacity_tokens=engine.kv_capacity_tokens,
                epoch=epoch,
                kv_transfer=engine.kv_transfer or self.kv_transfer,
                role=engine.role,
                bootstrap_port=engine.bootstrap_port,
            ),
            url=engine.url,
            api_key=_read_key(engine.api_key_file or self.engine_api_key_file),
            admin_key=_read_key(engine.admin_key_file),
            priority=engine.priority,
            control_block=engine.control_block or block,
            kv_events=self._kv_events(engine),
            scrape_period_s=self.scrape_period_s,
        )

    def _split_config(self) -> SplitConfig:
        rule, _, tokens = self.split.partition(":")
        return SplitConfig(rule=rule, beyond_tokens=int(tokens or 0))

    def _kv_events(self, engine: EngineSettings) -> KvEventsConfig | None:
        url = engine.kv_events or self.kv_events
        replay_url = engine.kv_events_replay or self.kv_events_replay
        host = urlsplit(engine.url).hostname or ""
        host = f"[{host}]" if ":" in host else host
        if not url:
            return None
        return KvEventsConfig(url=url.replace("{host}", host), replay_url=replay_url.replace("{host}", host))

    def unreachable_engines(self) -> tuple[EngineSettings, ...]:
        """Returns the engines that gateways on other hosts are invited to but cannot reach."""
        return tuple(filter(self.is_unreachable, self.fixed_engines))

    def is_unreachable(self, engine: EngineSettings) -> bool:
        """Returns whether an engine's address for gateways is on loopback, although the worker listens for gateways
        elsewhere."""
        return not on_loopback(self.stream_host) and on_loopback(urlsplit(engine.endpoint).hostname or "")

    def advertised(self, port: int) -> str:
        """Returns the address that gateways connect to, HOST:PORT; `port` is the one that the worker listens on."""
        host = self.advertise_host or self.stream_host
        if host in ("0.0.0.0", "::", "[::]"):
            host = socket.gethostname()
        return f"{host}:{port}"

    def worker_config(self, worker: str, incarnation: str, address: str) -> WorkerConfig:
        return WorkerConfig(
            worker=worker,
            incarnation=incarnation,
            address=address,
            pool=self.pool,
            aliases=self.aliases,
            max_queued=self.max_queued,
            max_queued_tokens=self.max_queued_tokens,
            static_n_run=self.static_n_run,
            delta_frag=self.delta_frag,
            prefill_window_s=self.prefill_window_s,
            split=self._split_config(),
            no_engine_patience_s=self.no_engine_patience_s,
            observes=self.mode == "observe",
            discovers=self.source is not None,
            leave_grace_s=self.leave_grace_s,
        )


def _read_key(path: Path | None) -> str:
    return path.read_text().strip() if path else ""

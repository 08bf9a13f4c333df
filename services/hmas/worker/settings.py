"""The settings of a worker, read once at its start."""

import json
import socket
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import NoDecode

from hmas.contracts.cadences import LIVE
from hmas.runtime.settings import RuntimeSettings
from hmas.worker.adapters.monitor import EngineFacts
from hmas.worker.adapters.openai_http import OpenAiHttpConfig, Priority
from hmas.worker.agent.config import WorkerConfig


class EngineSettings(BaseModel):
    """The settings of one engine: an element of HMAS_ENGINES. Facts that are left out are asked of the engine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    name: str = ""
    kind: str = "auto"
    hardware: str = "unknown"
    max_num_seqs: int | None = Field(None, gt=0)
    max_model_len: int | None = Field(None, gt=0)
    kv_capacity_tokens: int | None = Field(None, gt=0)
    priority: Priority = "auto"
    control_block: Path | None = None
    api_key_file: Path | None = None


class WorkerSettings(RuntimeSettings):
    """The settings of a worker, which serves one model with one or more engines."""

    pool: str = Field(description="Name of the model that this worker's engines serve")
    aliases: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Other model names by which clients may ask for the pool's model, separated by commas"
    )
    engines: Annotated[tuple[EngineSettings, ...], NoDecode] = Field(
        description="Engine URLs separated by commas, or a JSON list of objects (url, name, kind, hardware, "
        "max_num_seqs, max_model_len, kv_capacity_tokens, priority, control_block, api_key_file)"
    )
    engine_api_key_file: Path | None = Field(
        None, description="File with the API key for engines without an `api_key_file`"
    )
    control_block_dir: Path | None = Field(
        None,
        description="Folder of the control blocks for vLLM's scheduler plug-in: one file per engine, named after it",
    )
    grpc_host: str = Field("127.0.0.1", description="Address on which the worker listens for gateways (gRPC)")
    grpc_port: int = Field(
        0, ge=0, le=65535, description="Port on which the worker listens for gateways; 0 picks a free one"
    )
    advertise_host: str = Field(
        "",
        description="Host that gateways connect to; if unset, `grpc_host`, or this machine's name if that is 0.0.0.0",
    )
    max_queued: int = Field(100_000, gt=0, description="Most requests that may wait; more are refused")
    max_queued_tokens: int = Field(
        200_000_000, gt=0, description="Most tokens that may wait, prompts and predicted outputs; more are refused"
    )
    max_body_bytes: int = Field(
        2**30, gt=0, description="Most bytes of request bodies held, queued and running; more are refused"
    )
    static_n_run: int | None = Field(
        None,
        gt=0,
        description="Most sequences in flight per engine while no control tuple is in force; the engine's own limit if "
        "unset",
    )
    delta_frag: float = Field(0.05, ge=0, lt=1, description="Share of the KV cache that admission keeps free (Eq. 2)")
    prefill_window_s: float = Field(
        0.1,
        ge=0,
        description="Most seconds of prefill pending on an engine, at its measured pace; more prompts wait in the "
        "worker",
    )
    no_engine_patience_s: float = Field(
        10.0, ge=0, description="Seconds that requests wait while no engine is up, or an engine answers that it is full"
    )
    gateway_grace_s: float = Field(
        5.0, gt=0, description="Seconds that a gateway's requests are kept after its connection broke"
    )
    scrape_period_s: float = Field(
        LIVE.scrape_s, gt=0, description="Seconds between two scrapes of an engine's metrics"
    )
    seed: int | None = Field(None, description="Seed of the Lottery topology's draws; random if unset")

    @field_validator("aliases", mode="before")
    @classmethod
    def _split_aliases(cls, value: Any) -> Any:
        return tuple(a.strip() for a in value.split(",") if a.strip()) if isinstance(value, str) else value

    @field_validator("engines", mode="before")
    @classmethod
    def _split_engines(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return tuple(json.loads(value))
        return tuple({"url": url.strip()} for url in value.split(",") if url.strip())

    @model_validator(mode="after")
    def _named_apart(self) -> "WorkerSettings":
        names = [config.facts.name for config in self.engine_configs(with_keys=False)]
        if not names:
            raise ValueError("no engine is configured: set HMAS_ENGINES=http://HOST:PORT (several: with commas)")
        if len(set(names)) < len(names):
            raise ValueError(f"engines in HMAS_ENGINES must have different names, got {', '.join(names)}: set `name`")
        return self

    def engine_configs(self, *, with_keys: bool = True) -> tuple[OpenAiHttpConfig, ...]:
        """Returns the adapter's configuration of each engine. Raises OSError if an API key file cannot be read.

        `with_keys`: whether to read the API keys; without them no file is opened.
        """
        return tuple(self._engine_config(engine, with_keys) for engine in self.engines)

    def _engine_config(self, engine: EngineSettings, with_keys: bool) -> OpenAiHttpConfig:
        key_file = engine.api_key_file or self.engine_api_key_file
        name = engine.name or engine.url.partition("://")[2].rstrip("/")
        block = self.control_block_dir / name.replace("/", "_") if self.control_block_dir else None
        return OpenAiHttpConfig(
            facts=EngineFacts(
                name=name,
                kind=engine.kind,
                hardware=engine.hardware,
                max_num_seqs=engine.max_num_seqs,
                max_model_len=engine.max_model_len,
                kv_capacity_tokens=engine.kv_capacity_tokens,
            ),
            url=engine.url,
            api_key=key_file.read_text().strip() if with_keys and key_file else "",
            priority=engine.priority,
            control_block=engine.control_block or block,
            scrape_period_s=self.scrape_period_s,
        )

    def advertised(self, port: int) -> str:
        """Returns the address that gateways connect to, HOST:PORT; `port` is the one that the worker listens on."""
        host = self.advertise_host or self.grpc_host
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
            no_engine_patience_s=self.no_engine_patience_s,
        )

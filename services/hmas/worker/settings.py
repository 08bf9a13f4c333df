"""Settings of a worker, read once at its start."""

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
    """One engine. What is left out is asked of the engine itself."""

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
    """A worker in front of the engines of one model."""

    pool: str = Field(description="Name of the model that this worker's engines serve")
    aliases: Annotated[tuple[str, ...], NoDecode] = Field((), description="Further model names, separated by commas")
    engines: Annotated[tuple[EngineSettings, ...], NoDecode] = Field(
        description="Engine URLs separated by commas, or a JSON list of objects (url, name, kind, hardware, "
        "max_num_seqs, max_model_len, kv_capacity_tokens, priority, control_block, api_key_file)"
    )
    engine_api_key_file: Path | None = Field(None, description="File with the API key for engines that name none")
    control_block_dir: Path | None = Field(
        None, description="Folder of the control blocks for vLLM's scheduler plug-in: one file an engine, named like it"
    )
    grpc_host: str = Field("127.0.0.1", description="Address of the Execution service")
    grpc_port: int = Field(0, ge=0, le=65535, description="Port of the Execution service; 0 picks a free one")
    advertise_host: str = Field("", description="Host that gateways connect to; the host name if it listens everywhere")
    max_queued: int = Field(100_000, gt=0, description="Most requests queued")
    max_queued_tokens: int = Field(200_000_000, gt=0, description="Most prompt tokens queued")
    max_body_bytes: int = Field(2**30, gt=0, description="Most bytes of request bodies held")
    static_n_run: int | None = Field(
        None,
        gt=0,
        description="Sequences in flight per engine without a control tuple; the engine's own limit if unset",
    )
    delta_frag: float = Field(0.05, ge=0, lt=1, description="Share of the KV cache kept free of admissions (Eq. 2)")
    prefill_window_s: float = Field(
        0.1, ge=0, description="Prefill an engine may have before it, seconds at its measured pace; the rest waits here"
    )
    no_engine_patience_s: float = Field(
        10.0, ge=0, description="How long queued requests outlast the last engine, or an engine without room"
    )
    gateway_grace_s: float = Field(5.0, gt=0, description="How long a gateway's requests outlive its connection")
    scrape_period_s: float = Field(LIVE.scrape_s, gt=0, description="Between two scrapes of an engine's metrics")
    seed: int | None = Field(None, description="Seed of the Lottery topology; random if unset")

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
            raise ValueError("give at least one engine: HMAS_ENGINES=http://HOST:PORT")
        if len(set(names)) < len(names):
            raise ValueError(f"engines must have different names, got {', '.join(names)}: set `name`")
        return self

    def engine_configs(self, *, with_keys: bool = True) -> tuple[OpenAiHttpConfig, ...]:
        """Raises OSError where a key file cannot be read."""
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
        """The address that gateways connect to, HOST:PORT; `port` is the one that was bound."""
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

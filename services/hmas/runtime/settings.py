"""Settings that every service has, read once at start from environment variables with the prefix `HMAS_`."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class RuntimeSettings(BaseSettings):
    """The settings common to all services; each service adds its own in a subclass."""

    model_config = SettingsConfigDict(env_prefix="HMAS_", extra="ignore", frozen=True)

    instance: str = Field("", description="Name of this process in logs, metrics and messages; empty: made up")
    nats_url: str = Field("nats://127.0.0.1:4222", description="URL of the NATS server; several: separated by commas")
    nats_user: str = Field("", description="NATS user; empty: none")
    nats_password_file: Path | None = Field(None, description="File with the password of the NATS user; unset: none")
    nats_creds_file: Path | None = Field(None, description="NATS credentials file (JWT and nkey); unset: none")
    nats_replicas: int = Field(
        1, ge=1, le=5, description="Number of NATS servers that store copies of the control bucket and the audit stream"
    )
    ops_host: str = Field("127.0.0.1", description="Address on which /metrics, /health and /ready are served")
    ops_port: int = Field(0, ge=0, le=65535, description="Port of /metrics, /health and /ready; 0 picks a free one")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged")
    log_format: Literal["console", "json"] = Field("console", description="Format of the log: text or JSON lines")
    otlp_endpoint: str = Field(
        "", description="OTLP/HTTP collector for traces, such as http://collector:4318; empty: no tracing"
    )
    trace_ratio: float = Field(
        1.0, ge=0, le=1, description="Share of requests traced, among those whose client sends no trace context"
    )
    record_steps: int = Field(
        8192, ge=0, le=10**6, description="Number of the agent's last steps kept in memory for `hmas why --effects`"
    )
    record_dir: Path | None = Field(
        None, description="Folder for a recording of all steps of the agent, for `hmas sim replay-log`; unset: none"
    )
    record_max_bytes: int = Field(2**28, ge=2**16, description="Size in bytes at which the recording ends")
    drain_grace_s: float = Field(20.0, ge=0, description="Seconds that accepted requests may still take after SIGTERM")

    def nats_password(self) -> SecretStr | None:
        """Returns the password in `nats_password_file`, None if that is unset. Raises OSError if it cannot be read."""
        if self.nats_password_file is None:
            return None
        return SecretStr(self.nats_password_file.read_text().strip())

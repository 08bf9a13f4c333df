"""Settings that every service has. Read once at start from the environment (prefix `HMAS_`)."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class RuntimeSettings(BaseSettings):
    """Base of each service's settings."""

    model_config = SettingsConfigDict(env_prefix="HMAS_", extra="ignore", frozen=True)

    instance: str = Field("", description="Name of this process in logs, metrics and on the mesh; made up if empty")
    nats_url: str = Field("nats://127.0.0.1:4222", description="NATS server, or several separated by commas")
    nats_user: str = Field("", description="NATS user, if the server wants one")
    nats_password_file: Path | None = Field(None, description="File that holds the NATS password")
    nats_creds_file: Path | None = Field(None, description="NATS credentials file (JWT and nkey)")
    nats_replicas: int = Field(
        1, ge=1, le=5, description="Servers of a NATS cluster that keep the control bucket and the audit stream"
    )
    ops_host: str = Field("127.0.0.1", description="Address of /metrics, /health and /ready")
    ops_port: int = Field(0, ge=0, le=65535, description="Port of /metrics, /health and /ready; 0 picks a free one")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged")
    log_format: Literal["console", "json"] = Field("console", description="Human-readable lines or JSON")
    otlp_endpoint: str = Field("", description="OTLP/HTTP collector of traces, e.g. http://collector:4318; empty: none")
    trace_ratio: float = Field(1.0, ge=0, le=1, description="Share of the requests traced whose client does not say")
    record_steps: int = Field(
        8192, ge=0, le=10**6, description="Last steps of the agent kept in memory for `hmas why --effects`"
    )
    record_dir: Path | None = Field(
        None, description="Folder for a recording of every step from the start, for `hmas sim replay-log`; empty: none"
    )
    record_max_bytes: int = Field(2**28, ge=2**16, description="Size at which that recording ends")
    drain_grace_s: float = Field(20.0, ge=0, description="Seconds in-flight work may take after SIGTERM")

    def nats_password(self) -> SecretStr | None:
        """Reads the password file. Raises OSError if it cannot be read."""
        if self.nats_password_file is None:
            return None
        return SecretStr(self.nats_password_file.read_text().strip())

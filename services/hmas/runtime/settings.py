"""Settings that every service has, read once at start from environment variables with the prefix `HMAS_`."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from hmas.runtime.extras import CannotStart
from hmas.runtime.setting_names import SETTINGS

Mode = Literal["schedule", "observe"]
MODE_FIELD: Any = Field(
    "schedule",
    description="schedule, or observe: gateways place by least outstanding, without limits, and workers record what "
    "they would have granted; gateways and workers need the same",
)


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
    ops_host: str = Field(
        "127.0.0.1", description="Address on which /metrics, /health and /ready, and the gateway's /docs, are served"
    )
    mesh_secret_file: Path | None = Field(
        None,
        description="File with a secret that all services of the mesh have, by which gateways, workers, perception and "
        "prediction recognise one another; unset: they listen on this machine's loopback only",
    )
    mesh_ca_file: Path | None = Field(
        None,
        description="PEM file of the mesh's CA: with the next two, NATS, gRPC and the streams to workers use mutual "
        "TLS",
    )
    mesh_cert_file: Path | None = Field(None, description="PEM file of this service's certificate of the mesh's CA")
    mesh_key_file: Path | None = Field(None, description="PEM file of that certificate's private key")
    ops_port: int = Field(0, ge=0, le=65535, description="Port of /metrics, /health and /ready; 0 picks a free one")
    ops_token_file: Path | None = Field(
        None,
        description="File with the token that /metrics asks for, as `Authorization: Bearer`; unset: none",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged")
    log_format: Literal["console", "json"] = Field("console", description="Format of the log: text or JSON lines")
    otlp_endpoint: str = Field(
        "",
        description="OTLP/HTTP collector for traces, such as http://collector:4318; empty: that of "
        "`OTEL_EXPORTER_OTLP_ENDPOINT`, without which there is no tracing",
    )
    trace_ratio: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of requests traced, among those whose client sends no trace context; unset, "
        "`OTEL_TRACES_SAMPLER` counts where it is set",
    )
    record_steps: int = Field(
        8192, ge=0, le=10**6, description="Number of the agent's last steps kept in memory for `hmas why --effects`"
    )
    record_dir: Path | None = Field(
        None, description="Folder for a recording of all steps of the agent, for `hmas sim replay-log`; unset: none"
    )
    record_max_bytes: int = Field(2**28, ge=2**16, description="Size in bytes at which the recording ends")
    drain_grace_s: float = Field(20.0, ge=0, description="Seconds that accepted requests may still take after SIGTERM")

    def ops_token(self) -> str:
        """Returns the token in `ops_token_file`, empty if that is unset. Raises as `token_in`."""
        return token_in(self.ops_token_file)

    def nats_password(self) -> SecretStr | None:
        """Returns the password in `nats_password_file`, None if that is unset. Raises OSError if it cannot be read."""
        if self.nats_password_file is None:
            return None
        return SecretStr(self.nats_password_file.read_text().strip())


MAX_TOKEN_CHARS = 300


def token_in(file: Path | None) -> str:
    """Returns the token in a file, empty for None. Raises CannotStart if the file is empty, because it was meant to
    guard something, or longer than a token may be, and OSError if it cannot be read."""
    if file is None:
        return ""
    token = file.read_text().strip()
    if not token:
        raise CannotStart(f"{file} is empty: put a token of 32 random characters or more into it")
    if len(token) > MAX_TOKEN_CHARS:
        raise CannotStart(f"{file} has {len(token)} characters: put a token of at most {MAX_TOKEN_CHARS} into it")
    return token


# Settings that were there before, and what to do now.
REMOVED = {
    "HMAS_GATEWAY_GRACE_S": "workers keep nothing of a lost gateway; HMAS_SILENCE_S says when its stream is closed",
    "HMAS_STREAM_GRACE_S": "HMAS_FAIL_OPEN_AFTER_S says when the engines of a silent worker are used without it",
    "HMAS_AGGREGATE_ADMISSION": "admission is always by the aggregate of what runs",
    "HMAS_MOVE_LIMITS": "HMAS_N_RUN_RULE says what sets N_run; true is `band` now",
}
RENAMED = {"worker": {"HMAS_GRPC_HOST": "HMAS_STREAM_HOST", "HMAS_GRPC_PORT": "HMAS_STREAM_PORT"}}
# Read by the command line, by compose files, by engines, by tests and by benchmarks.
TOOLS = frozenset(
    "HMAS_" + name
    for name in (
        "API_KEY", "BENCH_FULL", "CONTROL_BLOCK", "DATA", "DATA_DIR", "ENGINE_CACHE", "ENGINE_INSTALL",
        "ENGINE_VERSIONS", "HYPOTHESIS_PROFILE", "IMAGE", "LLM_D", "MODEL", "OFFLINE_IMAGES", "PICTURE", "PROCESS",
        "PUBLISH", "SIM_SOAK_HOURS", "SOAK", "STACK_ROUTER", "TENANTS", "TOOL_CACHE",
    )
)  # fmt: skip


def wrong_variables(environ: Mapping[str, str], service: str = "") -> dict[str, str]:
    """Returns the variables with the prefix `HMAS_` that nothing reads, each with advice.

    A service is given the settings of the others as well, in a compose file for instance: these are known. `service`
    is the one that starts; an old name of its own setting is reported unless the new one is set too.
    """
    given = {name.upper(): name for name in environ if name.upper().startswith("HMAS_")}
    known = SETTINGS | TOOLS
    wrong = {}
    for name, spelt in sorted(given.items()):
        renamed = RENAMED.get(service, {}).get(name)
        if renamed is not None and renamed not in given:
            wrong[spelt] = f"it is called {renamed} now"
        elif name in REMOVED:
            wrong[spelt] = f"it was removed: {REMOVED[name]}"
        elif name not in known:
            nearest = get_close_matches(name, known, 1)
            wrong[spelt] = "there is no such setting" + (f": did you mean {nearest[0]}?" if nearest else "")
    return wrong

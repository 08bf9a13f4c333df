"""Settings of the gateway, read once at start from environment variables with the prefix `HMAS_`."""

import re
from pathlib import Path

from pydantic import Field, field_validator

from hmas.gateway.agent import CognitionQueueConfig, GatewayConfig
from hmas.gateway.agent.config import FailOpenConfig, StallConfig
from hmas.gateway.cognition import CognitionConfig
from hmas.gateway.engines.allowed import LOOPBACK, AllowedEndpoints, parse_rules
from hmas.gateway.http.bodies import BodyBounds
from hmas.gateway.http.server import HttpServerConfig
from hmas.gateway.streams import StreamConfig
from hmas.runtime.certificates import Certificate, CertificateFiles
from hmas.runtime.connections import ConnectionBounds
from hmas.runtime.extras import CannotStart
from hmas.runtime.security import security_of
from hmas.runtime.settings import MODE_FIELD, Mode, RuntimeSettings


class GatewaySettings(RuntimeSettings):
    """The settings that `python -m hmas.gateway` reads: `port`, for instance, from the variable `HMAS_PORT`."""

    host: str = Field("127.0.0.1", description="Address on which the API listens")
    port: int = Field(8000, ge=0, le=65535, description="Port of the API; 0 picks a free one")
    tls_cert_file: Path | None = Field(
        None,
        description="PEM file of the API's certificate with its chain, loaded again when it changes; unset: no TLS",
    )
    tls_key_file: Path | None = Field(None, description="PEM file of that certificate's private key")
    tenants_file: Path | None = Field(
        None, description="YAML file of tenants and API keys, reloaded when it changes; unset: no API key is needed"
    )
    cors_origins: str = Field(
        "",
        description="Origins of web pages that may use the API, such as https://chat.example, separated by commas, "
        "or *; empty: none",
    )
    usage_dir: Path | None = Field(
        None,
        description="Folder for daily CSV files of usage by tenant and API key, for `hmas usage`; unset: metrics alone",
    )
    end_revoked: bool = Field(
        False, description="End the open requests of an API key within a second of its revocation or expiry"
    )
    perception_address: str = Field("", description="host:port of the perception service; empty: cognition is off")
    prediction_address: str = Field("", description="host:port of the prediction service; empty: cognition is off")
    cognition_timeout_s: float = Field(
        0.05, gt=0, description="Seconds that one call of perception, and one of prediction, may take"
    )
    cognition_interval_s: float = Field(
        0.04, ge=0, description="Minimum number of seconds between the starts of two batches of questions to cognition"
    )
    replay_field: bool = Field(
        False, description="Accept the body field `hmas_replay`, which fixes the output length of a replayed request"
    )
    follow_prompts: bool = Field(
        True,
        description="Recognise the beginnings of prompts: calls of one job are linked without a header, and a request "
        "goes to the engines that hold its prompt's beginning",
    )
    engine_endpoints: str = Field(
        LOOPBACK,
        description="Engines that the gateway may use: patterns of their URLs, such as http://10.0.0.*:8000, separated "
        'by commas, or a JSON list of {"url", "api_key_file"}',
    )
    engine_api_key_file: Path | None = Field(
        None, description="File with the API key for engines without a key of their own; unset: none is sent"
    )
    picker_host: str = Field("127.0.0.1", description="Address on which the endpoint picker listens")
    picker_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the endpoint picker, which Envoy asks over gRPC (ext-proc) where each request goes; 0 "
        "picks a free one, unset: none",
    )
    mode: Mode = MODE_FIELD
    fail_open: bool = Field(
        True, description="Place requests without their worker, on its engines, while the worker is silent"
    )
    fail_open_after_s: float = Field(
        2.0,
        ge=0.5,
        description="Seconds of a worker's silence after which its stream is closed and its engines are used",
    )
    patience_s: float = Field(
        10.0, ge=0, description="Seconds that a request waits for a worker of its model before it is refused with 503"
    )
    request_timeout_s: float = Field(1800.0, gt=0, description="Seconds from a request's arrival until it is cancelled")
    comment_after_s: float = Field(
        2.0, gt=0, description="Seconds without a token after which a stream sends its first keep-alive comment"
    )
    comment_every_s: float = Field(15.0, gt=0, description="Seconds between two keep-alive comments of a stream")
    engine_stall_s: float = Field(
        30.0,
        gt=0,
        description="Minimum seconds without a token after which a request is taken from an engine whose counters of "
        "tokens stand still too",
    )
    engine_stall_factor: float = Field(
        20.0,
        ge=2,
        description="Multiple of an engine's usual time to the first or next token after which a request is taken from "
        "it if its counters of tokens stand still; never before HMAS_ENGINE_STALL_S",
    )
    engine_unknown_stall_s: float = Field(
        300.0,
        gt=0,
        description="Seconds without a token after which a request is taken from an engine that has not answered yet, "
        "so that its pace is unknown",
    )
    engine_starved_factor: float = Field(
        10.0,
        ge=1,
        description="Factor by which the bounds of HMAS_ENGINE_STALL_S and HMAS_ENGINE_STALL_FACTOR are longer for a "
        "streamed request on an engine that may be serving others",
    )
    max_requests: int = Field(65_536, ge=1, description="Maximum number of requests in the gateway, waiting or running")
    max_connections: int = Field(8_192, ge=1, description="Maximum number of client connections")
    max_body_bytes: int = Field(
        2 * 2**20, ge=1024, le=24 * 2**20, description="Largest request body in bytes; a larger one gets 413"
    )
    max_held_bytes: int = Field(
        2**30,
        ge=2**20,
        description="Maximum number of bytes of request bodies kept in all; a body is kept until the first token",
    )
    max_reading_bytes: int = Field(
        2**28,
        ge=2**20,
        description="Maximum number of bytes of request bodies in all that have come in part or wait to be parsed; "
        "above, they get 429",
    )
    max_buffered_bytes: int = Field(
        8 * 2**20,
        ge=2**16,
        description="Maximum number of bytes of one answer that its client has not read; above, it is cancelled",
    )
    head_timeout_s: float = Field(10.0, gt=0, description="Seconds a client may take to send its headers")
    body_timeout_s: float = Field(30.0, gt=0, description="Seconds a client may take to send its body")
    stall_s: float = Field(
        60.0, gt=0, description="Seconds that a client may read nothing while its answer waits, before it is cancelled"
    )
    keep_alive_s: int = Field(75, ge=1, description="Seconds that an idle client connection is kept open")
    journal: int = Field(4096, ge=0, description="Number of ended requests kept for `hmas why`")

    def agent_config(self, gateway: str) -> GatewayConfig:
        return GatewayConfig(
            gateway=gateway,
            observe=self.mode == "observe",
            fail_open=FailOpenConfig(enabled=self.fail_open, after_s=self.fail_open_after_s),
            patience_s=self.patience_s,
            request_timeout_s=self.request_timeout_s,
            max_requests=self.max_requests,
            max_held_bytes=self.max_held_bytes,
            stalls=StallConfig(
                least_s=self.engine_stall_s,
                factor=self.engine_stall_factor,
                unknown_s=self.engine_unknown_stall_s,
                starved=self.engine_starved_factor,
            ),
        )

    def server_config(self) -> HttpServerConfig:
        body = BodyBounds(self.max_body_bytes, self.body_timeout_s, self.max_reading_bytes)
        return HttpServerConfig(
            replay_field=self.replay_field,
            follow_prompts=self.follow_prompts,
            comment_after_s=self.comment_after_s,
            comment_every_s=self.comment_every_s,
            stall_s=self.stall_s,
            body=body,
        )

    def allowed_origins(self) -> tuple[str, ...]:
        return tuple(origin.strip().rstrip("/") for origin in self.cors_origins.split(",") if origin.strip())

    def connection_bounds(self) -> ConnectionBounds:
        return ConnectionBounds(self.max_connections, self.head_timeout_s, unread_s=2 * self.stall_s)

    def api_certificate(self) -> Certificate | None:
        """Returns the certificate of the API, None if it has none. Raises CannotStart."""
        if self.tls_cert_file is None and self.tls_key_file is None:
            return None
        if self.tls_cert_file is None or self.tls_key_file is None:
            raise CannotStart("set both HMAS_TLS_CERT_FILE and HMAS_TLS_KEY_FILE, or neither of them")
        return Certificate("api", CertificateFiles(cert=self.tls_cert_file, key=self.tls_key_file))

    def cognition_config(self) -> CognitionConfig:
        queue = CognitionQueueConfig(timeout_s=self.cognition_timeout_s, interval_s=self.cognition_interval_s)
        return CognitionConfig(self.perception_address, self.prediction_address, queue, security_of(self))

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, text: str) -> str:
        for origin in filter(None, map(str.strip, text.split(","))):
            if origin != "*" and not re.fullmatch(r"https?://[A-Za-z0-9.\-\[\]:]+/?", origin):
                raise ValueError(f"{origin!r} is not an origin: write one such as https://chat.example, or * for all")
        return text

    @field_validator("engine_endpoints")
    @classmethod
    def _check_endpoints(cls, text: str) -> str:
        parse_rules(text)
        return text

    def allowed_endpoints(self) -> AllowedEndpoints:
        """Returns which engines may be used. Raises OSError if the file of a key cannot be read."""
        return AllowedEndpoints(parse_rules(self.engine_endpoints), self.engine_api_key_file)

    def stream_config(self) -> StreamConfig:
        return StreamConfig(silence_s=self.fail_open_after_s)

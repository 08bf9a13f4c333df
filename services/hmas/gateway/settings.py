"""Settings of the gateway. Read once at start from the environment (prefix `HMAS_`)."""

from pathlib import Path

from pydantic import Field

from hmas.gateway.agent import CognitionQueueConfig, GatewayConfig
from hmas.gateway.cognition import CognitionConfig
from hmas.gateway.http.bodies import BodyBounds
from hmas.gateway.http.connections import ConnectionBounds
from hmas.gateway.http.server import HttpServerConfig
from hmas.gateway.shell import GatewayShellConfig
from hmas.gateway.streams import StreamConfig
from hmas.runtime.settings import RuntimeSettings


class GatewaySettings(RuntimeSettings):
    """What `python -m hmas.gateway` reads."""

    host: str = Field("127.0.0.1", description="Address of the API")
    port: int = Field(8000, ge=0, le=65535, description="Port of the API; 0 picks a free one")
    tenants_file: Path | None = Field(
        None, description="YAML file of tenants and keys, read again when it changes; none: no key is asked for"
    )
    perception_address: str = Field("", description="host:port of the perception service; empty: cognition is off")
    prediction_address: str = Field("", description="host:port of the prediction service; empty: cognition is off")
    cognition_timeout_s: float = Field(0.05, gt=0, description="Seconds perception and prediction may take, each")
    cognition_interval_s: float = Field(0.04, ge=0, description="Least seconds between two batches of cognition")
    replay_field: bool = Field(False, description="Accept `hmas_replay`, which sets a replayed answer's length")
    patience_s: float = Field(5.0, ge=0, description="Seconds a request waits for a worker to appear before 503")
    request_timeout_s: float = Field(1800.0, gt=0, description="Seconds a request may take in all")
    comment_after_s: float = Field(
        2.0, gt=0, description="Seconds in the queue after which a stream begins with keep-alive comments"
    )
    comment_every_s: float = Field(15.0, gt=0, description="Seconds between keep-alive comments")
    max_requests: int = Field(65_536, ge=1, description="Most requests alive in the gateway")
    max_connections: int = Field(8_192, ge=1, description="Most client connections")
    max_body_bytes: int = Field(
        10 * 2**20, ge=1024, le=24 * 2**20, description="Largest request body; checked before it is read"
    )
    max_held_bytes: int = Field(2**30, ge=2**20, description="Most bytes of bodies kept for requests without a token")
    max_buffered_bytes: int = Field(
        8 * 2**20, ge=2**16, description="Most bytes of one answer its client has not read; beyond, it is cancelled"
    )
    head_timeout_s: float = Field(10.0, gt=0, description="Seconds a client may take to send its headers")
    body_timeout_s: float = Field(30.0, gt=0, description="Seconds a client may take to send its body")
    stall_s: float = Field(60.0, gt=0, description="Seconds a client may leave a full connection unread")
    keep_alive_s: int = Field(75, ge=1, description="Seconds an idle connection is kept")
    stream_grace_s: float = Field(5.0, gt=0, description="Seconds a broken worker stream may take to heal")
    journal: int = Field(4096, ge=0, description="How many ended requests `hmas why` remembers")

    def agent_config(self, gateway: str) -> GatewayConfig:
        return GatewayConfig(
            gateway=gateway,
            patience_s=self.patience_s,
            request_timeout_s=self.request_timeout_s,
            max_requests=self.max_requests,
            max_held_bytes=self.max_held_bytes,
        )

    def shell_config(self, gateway: str) -> GatewayShellConfig:
        return GatewayShellConfig(gateway, self.max_buffered_bytes, self.journal)

    def server_config(self) -> HttpServerConfig:
        body = BodyBounds(self.max_body_bytes, self.body_timeout_s)
        return HttpServerConfig(
            replay_field=self.replay_field,
            comment_after_s=self.comment_after_s,
            comment_every_s=self.comment_every_s,
            stall_s=self.stall_s,
            body=body,
        )

    def connection_bounds(self) -> ConnectionBounds:
        return ConnectionBounds(self.max_connections, self.head_timeout_s)

    def cognition_config(self) -> CognitionConfig:
        queue = CognitionQueueConfig(timeout_s=self.cognition_timeout_s, interval_s=self.cognition_interval_s)
        return CognitionConfig(self.perception_address, self.prediction_address, queue)

    def stream_config(self) -> StreamConfig:
        return StreamConfig(grace_s=self.stream_grace_s)

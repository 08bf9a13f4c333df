"""Settings of the QoS agent, read once at its start."""

from pydantic import Field

from hmas.contracts.cadences import LONG_VIEW_S, SHORT_VIEW_S
from hmas.qos.agent.config import QosConfig
from hmas.runtime.settings import RuntimeSettings


class QosSettings(RuntimeSettings):
    """Settings of the QoS service: windows and periods of its views."""

    grpc_host: str = Field("127.0.0.1", description="Address on which the gRPC service Qos listens")
    grpc_port: int = Field(0, ge=0, le=65535, description="Port of the Qos service; 0 picks a free one")
    short_window_s: float = Field(5.0, gt=0, description="Seconds of the past that V_short covers")
    short_every_s: float = Field(SHORT_VIEW_S, ge=0.05, description="Seconds between two V_short of a pool")
    long_window_s: float = Field(120.0, gt=0, description="Seconds of the past that V_long covers")
    long_every_s: float = Field(LONG_VIEW_S, ge=0.25, description="Seconds between two V_long of a pool")
    max_names: int = Field(
        32,
        gt=0,
        description="Maximum number of tenants, and of task types, that a view names; it counts the rest as 'other'",
    )

    def qos_config(self) -> QosConfig:
        return QosConfig(
            short_window_s=self.short_window_s,
            short_every_s=self.short_every_s,
            long_window_s=self.long_window_s,
            long_every_s=self.long_every_s,
            max_names=self.max_names,
        )

"""Settings of perception, read once at its start."""

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from hmas.contracts.request import TagSource
from hmas.perception.agent import PerceptionConfig
from hmas.perception.agent.agent import CPU_SHARE, MAX_BATCH
from hmas.perception.agent.backend import Backend
from hmas.perception.agent.prior import HistoricalPriorConfig
from hmas.perception.backends.table import BACKENDS, GenerativeConfig
from hmas.runtime.settings import RuntimeSettings


class PerceptionSettings(RuntimeSettings):
    """Settings of perception: its backend, its batches and its prior."""

    grpc_host: str = Field("127.0.0.1", description="Address on which the gRPC service Perception listens")
    grpc_port: int = Field(0, ge=0, le=65535, description="Port of the Perception service; 0 picks a free one")
    perception_backend: str = Field("model", description=f"Backend that tags requests: {', '.join(BACKENDS)}")
    perception_budget_s: float = Field(
        0.04, gt=0, description="Seconds that the backend may take for a call; after that the prior answers"
    )
    perception_max_batch: int = Field(
        MAX_BATCH, gt=0, description="Maximum number of prompts in one batch of the backend"
    )
    perception_max_queued: int = Field(
        1024,
        gt=0,
        description="Maximum number of prompts that wait for the backend; the prior answers calls beyond it at once",
    )
    perception_cpu_share: float = Field(
        CPU_SHARE,
        gt=0,
        description="Share of one core that the backend may take; what would exceed it the prior answers at once. "
        "Where perception has a core of its own, set 1",
    )
    generative_model: str = Field(
        "", description="Language model of the generative backend: its name at HMAS_GENERATIVE_URL, or a local folder"
    )
    generative_url: str = Field(
        "",
        description="OpenAI-compatible endpoint of that model; if empty, transformers runs it in this process. A "
        "language model needs higher HMAS_PERCEPTION_BUDGET_S and HMAS_COGNITION_TIMEOUT_S than the defaults",
    )
    generative_api_key_file: Path | None = Field(None, description="File that holds the API key for that endpoint")
    generative_adapter: Path | None = Field(None, description="Folder of LoRA weights for a model in a local folder")
    prior_half_life_s: float = Field(
        600.0, gt=0, description="Seconds after which an observation counts half in the historical prior"
    )

    @field_validator("perception_backend")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in BACKENDS:
            raise ValueError(f"unknown backend {value!r}: choose one of {', '.join(BACKENDS)}")
        return value

    @model_validator(mode="after")
    def _generative_is_complete(self) -> "PerceptionSettings":
        if self.perception_backend == "generative" and not self.generative_model:
            raise ValueError(
                "HMAS_PERCEPTION_BACKEND=generative needs HMAS_GENERATIVE_MODEL, which is empty: set it to the model's "
                "name at HMAS_GENERATIVE_URL, or to a local folder"
            )
        return self

    def backend(self) -> tuple[TagSource, Backend]:
        """Makes the configured backend and returns it with the source of its tags. Raises OSError if the file with the
        API key of the generative backend cannot be read."""
        source, make = BACKENDS[self.perception_backend]
        generative = GenerativeConfig(
            model=self.generative_model,
            url=self.generative_url,
            api_key_file=self.generative_api_key_file,
            adapter=self.generative_adapter,
            timeout_s=self.perception_budget_s,
        )
        return source, make(generative)

    def perception_config(self, version: str, source: TagSource) -> PerceptionConfig:
        return PerceptionConfig(
            version=version,
            source=source,
            max_batch=self.perception_max_batch,
            max_queued=self.perception_max_queued,
            cpu_share=self.perception_cpu_share,
            prior=HistoricalPriorConfig(half_life_s=self.prior_half_life_s),
        )

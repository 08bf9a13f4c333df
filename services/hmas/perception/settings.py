"""Settings of perception, read once at its start."""

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from hmas.contracts.request import TagSource
from hmas.perception.agent import PerceptionConfig
from hmas.perception.agent.backend import Backend
from hmas.perception.agent.prior import HistoricalPriorConfig
from hmas.perception.backends.table import BACKENDS, GenerativeConfig
from hmas.runtime.settings import RuntimeSettings


class PerceptionSettings(RuntimeSettings):
    """Backend, batches and the prior."""

    grpc_host: str = Field("127.0.0.1", description="Address of the Perception service")
    grpc_port: int = Field(0, ge=0, le=65535, description="Port of the Perception service; 0 picks a free one")
    perception_backend: str = Field("model", description=f"Who tags requests: {', '.join(BACKENDS)}")
    perception_budget_s: float = Field(
        0.04, gt=0, description="Longest time an answer may take; then the prior answers"
    )
    perception_max_batch: int = Field(16, gt=0, description="Most prompts in one batch of the backend")
    perception_max_queued: int = Field(1024, gt=0, description="Most prompts waiting for the backend")
    generative_model: str = Field(
        "", description="The generative backend's causal LM: its name at the endpoint, or a local folder"
    )
    generative_url: str = Field(
        "",
        description="OpenAI endpoint of that model; empty: transformers in this process. A language model needs more "
        "than the default HMAS_PERCEPTION_BUDGET_S and HMAS_COGNITION_TIMEOUT_S",
    )
    generative_api_key_file: Path | None = Field(None, description="File that holds the endpoint's API key")
    generative_adapter: Path | None = Field(None, description="Folder of LoRA weights for the local model")
    prior_half_life_s: float = Field(600.0, gt=0, description="Half-life of the historical prior, seconds")

    @field_validator("perception_backend")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in BACKENDS:
            raise ValueError(f"no backend {value!r}; there are: {', '.join(BACKENDS)}")
        return value

    @model_validator(mode="after")
    def _generative_is_complete(self) -> "PerceptionSettings":
        if self.perception_backend == "generative" and not self.generative_model:
            raise ValueError("the generative backend needs HMAS_GENERATIVE_MODEL: a name at the endpoint, or a folder")
        return self

    def backend(self) -> tuple[TagSource, Backend]:
        """Raises OSError if the generative backend's API key cannot be read."""
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
            prior=HistoricalPriorConfig(half_life_s=self.prior_half_life_s),
        )

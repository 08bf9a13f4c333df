"""Settings of prediction, read once at its start."""

from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import Field, field_validator

from hmas.prediction.agent import PredictionConfig
from hmas.prediction.agent.backend import CostModel
from hmas.prediction.agent.linear import LinearCostModel, profiles_from
from hmas.prediction.models.table import COST_MODELS
from hmas.runtime.extras import CannotStart
from hmas.runtime.settings import RuntimeSettings


class PredictionSettings(RuntimeSettings):
    """Cost model and batches."""

    grpc_host: str = Field("127.0.0.1", description="Address of the Prediction service")
    grpc_port: int = Field(0, ge=0, le=65535, description="Port of the Prediction service; 0 picks a free one")
    cost_model: str = Field("catboost", description=f"Who predicts costs: {', '.join(COST_MODELS)}")
    cost_profiles_file: Path | None = Field(
        None, description="YAML of linear cost profiles instead of the shipped ones"
    )
    prediction_budget_s: float = Field(
        0.04, gt=0, description="Longest time an answer may take; then the linear profile answers"
    )
    prediction_max_batch: int = Field(256, gt=0, description="Most queries in one batch of the cost model")
    prediction_max_queued: int = Field(4096, gt=0, description="Most queries waiting for the cost model")

    @field_validator("cost_model")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in COST_MODELS:
            raise ValueError(f"no cost model {value!r}; there are: {', '.join(COST_MODELS)}")
        return value

    def linear_model(self) -> LinearCostModel:
        """Raises OSError or CannotStart for a file that cannot be used."""
        path = self.cost_profiles_file or files("hmas.prediction").joinpath("profiles.yaml")
        try:
            return LinearCostModel(profiles_from(yaml.safe_load(path.read_text())))
        except (yaml.YAMLError, ValueError) as error:
            raise CannotStart(f"HMAS_COST_PROFILES_FILE {path}: {' '.join(str(error).split())}") from error

    def model(self) -> CostModel:
        return COST_MODELS[self.cost_model](self.linear_model())

    def prediction_config(self) -> PredictionConfig:
        return PredictionConfig(max_batch=self.prediction_max_batch, max_queued=self.prediction_max_queued)

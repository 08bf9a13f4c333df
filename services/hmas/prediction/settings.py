"""Settings of prediction, read once at its start."""

from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import Field, field_validator

from hmas.prediction.agent import PredictionConfig
from hmas.prediction.agent.backend import CostModel
from hmas.prediction.agent.linear import profiles_from
from hmas.prediction.answers import StandIn
from hmas.prediction.models.table import COST_MODELS
from hmas.runtime.extras import CannotStart
from hmas.runtime.settings import RuntimeSettings


class PredictionSettings(RuntimeSettings):
    """Settings of prediction: its cost model and its batches."""

    grpc_host: str = Field("127.0.0.1", description="Address on which the gRPC service Prediction listens")
    grpc_port: int = Field(0, ge=0, le=65535, description="Port of the Prediction service; 0 picks a free one")
    cost_model: str = Field("catboost", description=f"Model that predicts costs: {', '.join(COST_MODELS)}")
    cost_profiles_file: Path | None = Field(
        None,
        description="YAML file of linear cost profiles, in the place of those that come with the package; they answer "
        "where the cost model is late, and every query where HMAS_COST_MODEL is linear",
    )
    prediction_budget_s: float = Field(
        0.04, gt=0, description="Seconds that the cost model may take for a call; after that the linear profile answers"
    )
    prediction_max_batch: int = Field(
        256, gt=0, description="Maximum number of requests in one batch of the cost model"
    )
    prediction_max_queued: int = Field(
        4096,
        gt=0,
        description="Maximum number of requests that wait for the cost model; the linear profile answers calls "
        "beyond it at once",
    )

    @field_validator("cost_model")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in COST_MODELS:
            raise ValueError(f"unknown cost model {value!r}: choose one of {', '.join(COST_MODELS)}")
        return value

    def stand_in(self) -> StandIn:
        """Returns the linear cost model of `cost_profiles_file`, or of the profiles that come with the package. Raises
        OSError if the file cannot be read and CannotStart if its content is wrong."""
        path = self.cost_profiles_file or files("hmas.prediction").joinpath("profiles.yaml")
        try:
            return StandIn(profiles_from(yaml.safe_load(path.read_text())))
        except (yaml.YAMLError, ValueError) as error:
            raise CannotStart(f"HMAS_COST_PROFILES_FILE {path}: {' '.join(str(error).split())}") from error

    def model(self, stand_in: StandIn) -> CostModel:
        return COST_MODELS[self.cost_model](stand_in)

    def prediction_config(self) -> PredictionConfig:
        return PredictionConfig(max_batch=self.prediction_max_batch, max_queued=self.prediction_max_queued)

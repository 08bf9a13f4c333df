"""The cost models there are. A new one is one file and one line here."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from services.prediction.backend import CostModel

if TYPE_CHECKING:
    from services.prediction.settings import PredictionSettings


def _catboost() -> CostModel:
    from services.prediction.catboost_model import CatBoostCostModel  # CatBoost loads only where it runs

    return CatBoostCostModel()


COST_MODELS: dict[str, Callable[["PredictionSettings"], CostModel]] = {
    "catboost": lambda settings: _catboost(),
    "linear": lambda settings: settings.linear_model(),
}

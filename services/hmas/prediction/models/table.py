"""The table of cost models. A new cost model is one file and one line here."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hmas.prediction.agent.backend import CostModel
from hmas.prediction.models.by_catalogue import ByCatalogue
from hmas.runtime.extras import needs

if TYPE_CHECKING:
    from hmas.prediction.settings import PredictionSettings


def _catboost(settings: "PredictionSettings") -> CostModel:
    with needs("prediction", "set HMAS_COST_MODEL=linear"):
        from hmas.prediction.models.catboost_model import CatBoostCostModel  # loads its arrays

    return ByCatalogue(CatBoostCostModel(), settings.linear_model())


COST_MODELS: dict[str, Callable[["PredictionSettings"], CostModel]] = {
    "catboost": _catboost,
    "linear": lambda settings: settings.linear_model(),
}

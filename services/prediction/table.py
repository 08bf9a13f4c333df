"""The cost models there are. A new one is one file and one line here."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from services.prediction.backend import CostModel

if TYPE_CHECKING:
    from services.prediction.settings import PredictionSettings

COST_MODELS: dict[str, Callable[["PredictionSettings"], CostModel]] = {
    "linear": lambda settings: settings.linear_model(),
}

"""The cost models there are, each made from the linear model that stands in for it. A new one is one file and one line
here."""

from collections.abc import Callable

from hmas.prediction.agent.backend import CostModel
from hmas.prediction.agent.linear import LinearCostModel
from hmas.runtime.extras import needs


def _catboost() -> CostModel:
    with needs("prediction", "set HMAS_COST_MODEL=linear"):
        from hmas.prediction.models.by_catalogue import shipped  # its arrays load only where it runs

    return shipped()


COST_MODELS: dict[str, Callable[[LinearCostModel], CostModel]] = {
    "catboost": lambda _: _catboost(),
    "linear": lambda linear: linear,
}

"""Chooses the cost model for each query by whether the catalogue knows the query's model and accelerator."""

from collections.abc import Sequence

from hmas.contracts.request import Cost
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.prediction.models.catalogue import knows
from hmas.prediction.models.catboost_model import CatBoostCostModel
from hmas.prediction.models.roofline import RooflineCostModel


class ByCatalogue:
    """A cost model that asks `trained` about models and accelerators in the catalogue, and `untrained` about others, of
    which trees would say what they learnt of the typical engine that stands in for them."""

    def __init__(self, trained: CostModel, untrained: CostModel) -> None:
        self._trained = trained
        self.untrained = untrained

    @property
    def version(self) -> str:
        return self._trained.version

    def chosen(self, query: CostQuery) -> CostModel:
        """Returns the model that answers the query."""
        return self._trained if knows(query) else self.untrained

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        known = list(map(knows, queries))
        trained = iter(self._trained.predict([q for q, own in zip(queries, known, strict=True) if own]))
        untrained = iter(self.untrained.predict([q for q, own in zip(queries, known, strict=True) if not own]))
        return [next(trained if own else untrained) for own in known]


def shipped() -> ByCatalogue:
    """Returns the cost model as it ships: the trained trees where model and accelerator are known, otherwise the
    physical term alone, with the facts that are known."""
    trained = CatBoostCostModel()
    return ByCatalogue(trained, RooflineCostModel(trained.roofline))

"""Chooses the cost model for each query by whether the catalogue knows the query's model and accelerator."""

from collections.abc import Sequence

from hmas.contracts.request import Cost
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.prediction.models.catalogue import knows


class ByCatalogue:
    """A cost model that asks `trained` about models and accelerators in the catalogue, and `untrained` about others.

    For unknown ones, trees trained on measurements may predict anything from 0.1 ms to 1 s per token.
    """

    def __init__(self, trained: CostModel, untrained: CostModel) -> None:
        self._trained = trained
        self._untrained = untrained

    @property
    def version(self) -> str:
        return self._trained.version

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        known = list(map(knows, queries))
        trained = iter(self._trained.predict([q for q, own in zip(queries, known, strict=True) if own]))
        untrained = iter(self._untrained.predict([q for q, own in zip(queries, known, strict=True) if not own]))
        return [next(trained if own else untrained) for own in known]

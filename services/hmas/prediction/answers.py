"""Which model answered each request, and how far its costs were from the measured ones. Pure."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, nan
from statistics import median
from typing import Protocol, runtime_checkable

from hmas.contracts.request import Cost
from hmas.contracts.telemetry import RequestFinished
from hmas.prediction.agent.agent import PredictItem
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.prediction.agent.linear import LinearCostModel, LinearProfile
from hmas.prediction.agent.measured_worker import MeasuredWorkers, measured_cost
from hmas.prediction.agent.open_requests import OpenRequests

COSTS = ("ttft", "tpot")
MOST_OPEN = 65_536  # requests whose end is awaited
MOST_MEASURED = 4096  # kinds of engines of workers
WINDOW = 500  # errors of which the median is told
_LEAST_S = 1e-9


def kind(version: str) -> str:
    """Returns the name of a model without its version: `catboost` of `catboost-1a2b3c4d`."""
    return version.partition("-")[0]


@runtime_checkable
class Choosing(Protocol):
    """A cost model that leaves queries about unknown engines to the model `untrained`."""

    untrained: CostModel

    def chosen(self, query: CostQuery) -> CostModel: ...


class StandIn(LinearCostModel):
    """The model that answers where the cost model is late or fails. It remembers which queries it answered; where it is
    the cost model itself, the model's thread asks it as well."""

    def __init__(self, profiles: Sequence[LinearProfile]) -> None:
        super().__init__(profiles)
        self._asked: OrderedDict[int, CostQuery] = OrderedDict()

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        for query in queries:
            self._asked[id(query)] = query
        while len(self._asked) > MOST_OPEN:
            self._asked.popitem(last=False)
        return super().predict(queries)

    def answered(self, query: CostQuery) -> bool:
        """Tells, once, whether it answered this very query."""
        return self._asked.pop(id(query), None) is query


@dataclass(frozen=True, slots=True)
class _Predicted:
    """The costs that were predicted for one request: `said` by the model named `by`, corrected; the physical term's as
    it is, and corrected."""

    item: PredictItem
    by: str
    said: Cost
    plain: Cost
    beside: Cost


class PredictionErrors:
    """Compares corrected costs with those that workers measured.

    The physical term predicts every request as well and is corrected by the same measurements, so that it and the
    trained model are compared on the same requests.
    """

    def __init__(self, physical: CostModel) -> None:
        self._physical = physical
        self._name = kind(physical.version)
        self._open: OpenRequests[_Predicted] = OpenRequests(MOST_OPEN)
        self._measured = MeasuredWorkers(MOST_MEASURED)
        self._errors: defaultdict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))

    def predicted(self, item: PredictItem, said: Cost, by: str) -> None:
        (plain,) = self._physical.predict([item.query])
        beside = self._measured.cost(item.worker, item.query, plain)
        self._open.add(item.request_id, item.query.kind, _Predicted(item, by, said, plain, beside))

    def finished(self, pool: str, finished: RequestFinished) -> None:
        found = self._open.ended(pool, finished)
        if found is None:
            return
        cost = measured_cost(finished)
        for name, said in {self._name: found.beside, found.by: found.said}.items():
            self._judge(name, said, cost)
        self._measured.learn(found.item.worker, found.item.query, found.plain, cost)

    def median(self, model: str, cost: str) -> float:
        """Returns the median |log(predicted / measured)| of the last `WINDOW` requests; NaN without any."""
        errors = self._errors[model, cost]
        return median(errors) if errors else nan

    def _judge(self, name: str, said: Cost, measured: Cost) -> None:
        pairs = (said.ttft_s, measured.ttft_s), (said.tpot_s, measured.tpot_s)
        for cost, (predicted_s, measured_s) in zip(COSTS, pairs, strict=True):
            if measured_s > 0.0:
                self._errors[name, cost].append(abs(log(max(_LEAST_S, predicted_s) / measured_s)))

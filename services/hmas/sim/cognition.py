"""Perception and prediction in virtual time: one server that annotates requests in micro-batches."""

from collections import deque
from collections.abc import Callable

from hmas.contracts.request import Annotation
from hmas.sim.estimators import Costs, Estimator
from hmas.sim.heap import EventHeap
from hmas.sim.setup import SimCognitionConfig
from hmas.sim.workload import OfferedRequest

Answer = Callable[[OfferedRequest, Annotation], None]


class SimCognition:
    """Annotates requests as perception and prediction do. As soon as it is free it takes all waiting requests, up to a
    full batch. `answer` is called with each annotation; a request that `estimator` knows nothing of gets none."""

    def __init__(
        self, heap: EventHeap, config: SimCognitionConfig, estimator: Estimator, costs: Costs, answer: Answer
    ) -> None:
        self._heap = heap
        self._config = config
        self._estimator = estimator
        self._costs = costs
        self._answer = answer
        self._waiting: deque[OfferedRequest] = deque()
        self._busy = False

    def ask(self, offered: OfferedRequest) -> None:
        self._waiting.append(offered)
        if not self._busy:
            self._start()

    def _start(self) -> None:
        config = self._config
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), config.max_batch))]
        self._busy = True
        self._heap.after(config.fixed_s + config.per_request_s * len(batch), self._done, batch)

    def _done(self, batch: list[OfferedRequest]) -> None:
        self._busy = False
        for offered in batch:
            tags = self._estimator.tags(offered)
            if tags is not None:
                annotation = Annotation(tags, self._costs.cost(offered, tags))
                self._heap.after(self._config.network_s, self._answer, offered, annotation)
        if self._waiting:
            self._start()

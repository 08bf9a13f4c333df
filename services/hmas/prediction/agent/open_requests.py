"""What was predicted for requests whose end is awaited."""

from collections import OrderedDict
from typing import Generic, TypeVar

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import RequestFinished

Prediction = TypeVar("Prediction")


class OpenRequests(Generic[Prediction]):
    """The newest predictions by request and kind of engine; beyond `most` requests the oldest is forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[str, dict[EngineKind, Prediction]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, request_id: str, kind: EngineKind, prediction: Prediction) -> None:
        self._open.setdefault(request_id, {})[kind] = prediction
        self._open.move_to_end(request_id)
        if len(self._open) > self._most:
            self._open.popitem(last=False)

    def ended(self, pool: str, finished: RequestFinished) -> Prediction | None:
        """Forgets a request of that pool that ended; returns what was predicted for the kind of engine that it ran on,
        or for the only one that was asked about. None if it did not finish, or nothing is known of it."""
        known = self._open.pop(finished.request_id, None)
        if known is None or finished.outcome is not Outcome.FINISHED:
            return None
        if len(known) == 1:
            return next(iter(known.values()))
        return known.get(EngineKind(finished.kind.model or pool, finished.kind.hardware))

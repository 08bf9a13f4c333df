"""The interface of cost models, which predict service times."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.request import Cost, TaskType


@dataclass(frozen=True, slots=True, kw_only=True)
class CostQuery:
    """What a cost model is told of one request on one kind of engine of a worker. `output_tokens` is the predicted
    output length l_pred; `running` and `waiting` count the requests in the engine, and `kv_usage` in [0, 1] is the use
    of its KV memory. `hardware` names the accelerator and how many there are (`A100-40GBx2`).
    """

    prompt_tokens: int
    output_tokens: float
    model: str
    hardware: str
    running: int
    waiting: int
    kv_usage: float
    task: TaskType

    @property
    def kind(self) -> EngineKind:
        return EngineKind(self.model, self.hardware)


class CostModel(Protocol):
    """Predicts the costs of a batch of queries. The shell calls it in a thread of its own, one batch at a time."""

    @property
    def version(self) -> str: ...

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        """Returns the predicted median cost of each query, in order; times are in s."""
        ...

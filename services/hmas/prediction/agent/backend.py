"""What a cost model is: queries in, service-time proxies out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hmas.contracts.request import Cost, TaskType


@dataclass(frozen=True, slots=True, kw_only=True)
class CostQuery:
    """One request on one worker. `output_tokens` is l_pred; `running` and `waiting` count the engine's requests.

    `kv_usage` is the engine's KV-cache use in [0, 1]. `hardware` names accelerator and count (`A100-40GBx2`).
    """

    prompt_tokens: int
    output_tokens: float
    model: str
    hardware: str
    running: int
    waiting: int
    kv_usage: float
    task: TaskType


class CostModel(Protocol):
    """Answers a batch at once; called off the event loop, one batch at a time."""

    @property
    def version(self) -> str: ...

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        """Median cost of each query, in order, seconds."""
        ...

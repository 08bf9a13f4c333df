"""Events and effects of the agents that batch calls for a model: perception and prediction."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Row = TypeVar("Row")
Result = TypeVar("Result")
Answer = TypeVar("Answer")

# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallReceived(Generic[Item]):
    """A gateway asked for an answer to each item within `budget_s` seconds. `call` numbers the calls."""

    call: int
    items: tuple[Item, ...]
    budget_s: float


@dataclass(frozen=True, slots=True)
class BatchReturned(Generic[Result]):
    """The model returned its results of the batch number `batch`, in the order of the batch's rows. `cpu_s`: the CPU
    time that they took."""

    batch: int
    results: tuple[Result, ...]
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """The model failed on the batch number `batch`, after `cpu_s` of CPU time; `error` says why, for the log."""

    batch: int
    error: str
    cpu_s: float = 0.0


# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunBatch(Generic[Row]):
    """Run the model on the rows, in a thread beside the event loop. Only one batch runs at a time."""

    batch: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class AnswerCall(Generic[Answer]):
    """Answer the gateway's call number `call`."""

    call: int
    answers: tuple[Answer, ...]  # one per item, in the call's order

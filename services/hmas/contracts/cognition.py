"""Events and effects of the agents that batch calls for a model: perception, prediction."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Row = TypeVar("Row")
Result = TypeVar("Result")
Answer = TypeVar("Answer")

# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallReceived(Generic[Item]):
    """A gateway wants an answer to each item within `budget_s`."""

    call: int
    items: tuple[Item, ...]
    budget_s: float


@dataclass(frozen=True, slots=True)
class BatchReturned(Generic[Result]):
    """The model's results, in the order of the batch's rows."""

    batch: int
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class BatchFailed:
    batch: int
    error: str


# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunBatch(Generic[Row]):
    """Give the rows to the model, off the event loop; one batch at a time."""

    batch: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class AnswerCall(Generic[Answer]):
    call: int
    answers: tuple[Answer, ...]  # in the call's order

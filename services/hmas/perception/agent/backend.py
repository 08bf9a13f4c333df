"""What a perception backend is: prompts in, estimates out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hmas.contracts.request import TaskType
from hmas.laws.recording import PRIVATE


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptView:
    """What perception may see of a request. `prompt_tokens` is the gateway's count; `max_tokens` only caps."""

    text: str = field(metadata=PRIVATE)
    prompt_tokens: int
    model: str
    tenant: str
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Task type with its calibrated probability, and the output length's median and 90 % quantile, tokens.

    A backend that doubts the type but not the length says `TaskType.UNKNOWN` and keeps the length.
    """

    task: TaskType
    confidence: float
    output_tokens: float
    output_tokens_p90: float


class Backend(Protocol):
    """Answers a batch at once. It may be slow: the server calls it off the event loop, one batch at a time."""

    @property
    def version(self) -> str:
        """Name of the predictor: errors of two versions are never calibrated together."""
        ...

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        """One entry a prompt, in order; None where the backend knows nothing of it."""
        ...

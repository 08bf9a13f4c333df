"""The interface of perception's backends, which turn prompts into estimates."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hmas.contracts.request import TaskType
from hmas.laws.recording import PRIVATE


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptView:
    """What perception may see of a request. `prompt_tokens` is the gateway's count; `max_tokens` (None if the client
    set none) only caps a prediction."""

    text: str = field(metadata=PRIVATE)
    prompt_tokens: int
    model: str
    tenant: str
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A backend's estimate for a prompt: the task type with its calibrated probability, and the median and the 90 %
    quantile of the output length, in tokens.

    A backend that doubts the type but not the length returns `TaskType.UNKNOWN` with the length. `tool_call` is the
    probability that an agent which has tools answers with a call of one; None if the backend cannot tell.
    """

    task: TaskType
    confidence: float
    output_tokens: float
    output_tokens_p90: float
    tool_call: float | None = None


class Backend(Protocol):
    """Estimates a batch of prompts. It may be slow: the shell calls it in a thread of its own, one batch at a time."""

    @property
    def version(self) -> str:
        """The version of the predictor; length errors of two versions are never calibrated together."""
        ...

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        """Returns one estimate per prompt, in order; None for a prompt of which the backend knows nothing."""
        ...

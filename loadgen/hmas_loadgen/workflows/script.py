"""What a job is to send: its calls, and when each may go."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hmas.contracts.request import TaskType
from hmas_loadgen.workflows.applications import outside_s
from hmas_loadgen.workflows.recorded import ChatMessage, Workflow


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A call: the chat that is sent, the tokens of its answer, the numbers of the calls in its job that it waits for,
    and the seconds after the last of these until it goes. `task`: None, if it is not known."""

    messages: Sequence[ChatMessage]
    output_tokens: int
    after: tuple[int, ...]
    outside_s: float
    task: TaskType | None = None


@dataclass(frozen=True, slots=True)
class JobScript:
    """A job of one template: its calls, of which each waits only for earlier ones."""

    template: str
    calls: tuple[ScriptCall, ...]


def recorded_script(workflow: Workflow, random: Random) -> JobScript:
    """Returns a recorded workflow as a job: each call goes after the one before it. Times were not recorded; those
    outside of models are drawn."""
    calls = tuple(
        ScriptCall(call.messages, call.output_tokens, (n - 1,) if n else (), outside_s(random) if n else 0.0)
        for n, call in enumerate(workflow.calls)
    )
    return JobScript(workflow.corpus, calls)

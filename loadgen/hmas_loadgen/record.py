"""One request's fate as the client saw it, and what a run yields."""

from dataclasses import dataclass, field

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType

CUT_OFF = "cut off"  # error of a request that was unfinished when the run ended or was stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Instants are seconds since the run's start; None where that point was not reached.

    `index`: place in the schedule. `token_times_s`: arrival of each token event. `status`: HTTP status, 0 without an
    answer. `error`: empty, or a group name such as `429 pool_queue_full` for the table of errors.
    """

    index: int
    request_id: str
    tenant: str
    task: TaskType
    slo: Slo
    prompt_tokens: int
    expected_output_tokens: int
    scheduled_s: float
    sent_s: float
    end_s: float
    outcome: Outcome
    status: int = 0
    error: str = ""
    message: str = ""
    base_url: str = ""
    output_tokens: int = 0
    first_token_s: float | None = None
    last_token_s: float | None = None
    token_times_s: tuple[float, ...] = field(default=(), repr=False)

    @property
    def lag_s(self) -> float:
        """How late the generator itself was."""
        return self.sent_s - self.scheduled_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands; rates over the last reporting interval."""

    elapsed_s: float
    window_s: float
    planned: int
    sent: int
    finished: int
    failed: int
    in_flight: int
    send_rps: float
    finish_rps: float
    token_rps: float
    ok: int
    lag_p50_s: float
